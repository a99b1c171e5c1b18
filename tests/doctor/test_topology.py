"""What a topology would do here."""

import socket
from dataclasses import replace
from typing import Any

from splitserve.doctor.findings import TopologyReport
from splitserve.doctor.topology import examine_topology
from splitserve.launch.plan import ModelFacts
from splitserve.launch.sizes import ByteSize
from splitserve.launch.topology import GatewayAsked, ModelAsked, Topology, WorkerGroup

from .made import GIB, links, machine

FACTS = ModelFacts(kv_token_bytes=100_000, max_model_len=16_384, weight_bytes=0)
SPLIT = tuple(WorkerGroup(role=role, engine="fake") for role in ("prefill", "decode"))


def examined(
    *groups: WorkerGroup, facts: ModelFacts | None = FACTS, port: int = 0, **model: Any
) -> TopologyReport:
    asked = ModelAsked("smollm2", **model)
    topology = Topology(asked, groups, GatewayAsked(port=port))
    return examine_topology("t.toml", topology, facts, machine(), links(), 1000.0)


def levels(report: TopologyReport, about: str) -> list[str]:
    return [one.level for one in report.advice if one.about == about]


def test_workers_pairs_and_the_cost_of_prompts_are_told() -> None:
    report = examined(*SPLIT)
    assert [(worker.name, worker.connector) for worker in report.workers] == [
        ("prefill-0", "shm"),
        ("decode-0", "shm"),
    ]
    assert [worker.kv_tokens for worker in report.workers] == [1024 * 16] * 2
    assert [(pair.prefill, pair.decode, pair.path) for pair in report.pairs] == [
        ("prefill-0", "decode-0", "shm")
    ]
    assert {cost.path for cost in report.prompts} == {one.path for one in links()}
    assert report.model is not None
    assert (report.model.kv_token_bytes, report.model.max_model_len) == (100_000, 16_384)
    assert "error" not in {one.level for one in report.advice}


def test_shards_of_unequal_heads_would_not_start() -> None:
    facts = replace(FACTS, num_kv_heads=3)
    report = examined(WorkerGroup(tensor_parallel_size=2), facts=facts)
    (refusal,) = [one for one in report.advice if one.about == "start"]
    assert "tensor_parallel_size must divide the number of KV heads, 3" in refusal.says
    assert levels(examined(WorkerGroup(tensor_parallel_size=2), facts=None), "start") == []


def test_a_model_that_is_not_here_leaves_out_what_depends_on_it() -> None:
    report = examined(*SPLIT, facts=None)
    assert (report.model, report.prompts) == (None, ())
    assert [worker.kv_tokens for worker in report.workers] == [None, None]
    assert levels(report, "model") == ["warning"]
    assert levels(report, "start") == []


def test_what_up_would_refuse_is_an_error_and_the_rest_is_told() -> None:
    report = examined(*SPLIT, max_model_len=20_000)
    (refusal,) = [one for one in report.advice if one.about == "start"]
    assert refusal.level == "error"
    assert "20000 is more than the model's own 16384" in refusal.says
    assert report.workers == ()
    assert len(report.pairs) == 1


def test_a_program_that_is_not_there_is_an_error() -> None:
    groups = [
        WorkerGroup(role=role, engine="vllm", command="/nonexistent/vllm")
        for role in ("prefill", "decode")
    ]
    (refusal,) = [one for one in examined(*groups).advice if "no program" in one.says]
    assert (refusal.level, refusal.about) == ("error", "start")


def test_a_kv_tier_that_shared_memory_cannot_hold_is_an_error() -> None:
    report = examined(WorkerGroup(kv_tier_memory_bytes=ByteSize(9 * GIB)))
    (refusal,) = [one for one in report.advice if "/dev/shm" in one.says]
    assert (refusal.level, refusal.about) == ("error", "start")


def test_a_taken_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        report = examined(*SPLIT, port=port)
    assert levels(report, "port") == ["error"]
    assert [one.right for one in report.ports] == [False]


def test_instances_that_run_are_asked_whether_they_listen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        group = WorkerGroup(engine="vllm", url=(url,))
        report = examined(group)
    assert [(worker.name, worker.url) for worker in report.workers] == [("colocated-0", url)]
    assert levels(report, "port") == []
