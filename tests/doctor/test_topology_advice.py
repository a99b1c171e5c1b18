"""What is warned of before a topology is started."""

import pytest

from splitserve.doctor.findings import Gpu, Port
from splitserve.doctor.topology_advice import (
    gpu_advice,
    model_advice,
    pair_advice,
    port_advice,
    tier_advice,
)
from splitserve.launch.plan import MachineFacts, ModelFacts, Plan, resolve
from splitserve.launch.sizes import ByteSize
from splitserve.launch.spec import Paths
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup

from .made import GIB, H200, MODEL, link, links, machine, pair

HOST = MachineFacts(cores=(0, 1), memory_bytes=64 * GIB, free_ports=(9000, 9001, 9002, 9003))
FACTS = ModelFacts(1000, max_model_len=100, weight_bytes=15 * GIB, checkpoint="/models/m")


def on_gpus(**settings: object) -> tuple[Topology, Plan]:
    groups = tuple(
        WorkerGroup(**{"role": role, "device": "cuda", "devices": (0,), **settings})  # type: ignore[arg-type]
        for role in ("prefill", "decode")
    )
    topology = Topology(ModelAsked("m"), groups)
    return topology, resolve(topology, HOST, FACTS, Paths("/run/x", "python"))


def test_the_shortest_prompt_that_costs_too_much_is_named_once() -> None:
    # 8,192 tokens weigh 0.8 GB: 137 ms at 6 GB/s.
    pairs = [pair(), pair(decode="decode-1")]
    (one,) = pair_advice(pairs, links(), MODEL, ttft_target_ms=1000.0)
    assert (one.level, one.about) == ("warning", "cost")
    assert "8,192 tokens take 137 ms over shm, 14% of the 1000 ms" in one.says


def test_prompts_that_fit_the_target_or_are_too_long_to_be_served_are_not_named() -> None:
    assert list(pair_advice([pair()], links(), MODEL, ttft_target_ms=10_000.0)) == []
    slow = [link("shm", gb_per_s=6.0)]
    # Only 32,768 tokens would cost too much, and the model takes 16,384.
    assert list(pair_advice([pair()], slow, MODEL, ttft_target_ms=3000.0)) == []


def test_a_connector_that_cannot_be_used_keeps_native_workers_from_starting() -> None:
    broken = [link("nixl", state="missing", why="needs the nixl package: pip install it")]
    (one,) = pair_advice([pair(path="nixl", connector="nixl")], broken, MODEL, 1000.0)
    assert (one.level, one.about) == ("error", "start")
    assert "pip install it" in one.says
    in_vllm = pair(path="nixl", connector="NixlConnector", engine="vllm")
    assert list(pair_advice([in_vllm], broken, MODEL, 1000.0)) == []


def test_a_path_that_was_asked_for_is_held_against_the_one_chosen_by_itself() -> None:
    over_tcp = pair(path="tcp", connector="tcp")
    (one,) = pair_advice([over_tcp], links(), MODEL, 10_000.0)
    assert (one.level, one.about) == ("warning", "slow")
    assert "tcp brings 1.50 GB/s here and shm 6.00" in one.says
    assert "leave out connector" in one.cure
    near = [link("shm", gb_per_s=2.9), link("tcp", gb_per_s=1.5)]
    unknown = [link("shm", state="failed"), link("tcp", gb_per_s=1.5)]
    for measured in (near, unknown):
        assert list(pair_advice([over_tcp], measured, None, 10_000.0)) == []
    in_vllm = pair(path="tcp", connector="NixlConnector", engine="vllm")
    assert list(pair_advice([in_vllm], links(), MODEL, 10_000.0)) == []


@pytest.mark.parametrize(
    ("port", "level", "says"),
    [
        (Port("127.0.0.1", 8000, "gateway", "http", "free", False), "error", "is taken"),
        (Port("h", 5600, "prefill-0", "side channel", "open", False), "warning", "is closed"),
        (Port("h", 8100, "prefill-0", "http", "open", False), "warning", "does not answer"),
    ],
    ids=("taken", "side-channel", "instance"),
)
def test_a_port_that_is_not_as_it_must_be_is_named(port: Port, level: str, says: str) -> None:
    (one,) = port_advice([port])
    assert one.level == level
    assert f"{port.user}: {port.purpose} port {port.host}:{port.number} {says}" in one.says
    assert one.cure


def test_ports_that_are_as_they_must_be_are_not() -> None:
    assert list(port_advice([Port("h", 1, "u", "http", "open", True)])) == []


def test_a_model_that_is_not_here_is_said_with_how_to_get_it() -> None:
    group = (WorkerGroup(),)
    (known,) = model_advice(Topology(ModelAsked("smollm2"), group), None)
    (of_hub,) = model_advice(Topology(ModelAsked("org/m"), group), None)
    assert (known.cure, of_hub.cure) == ("splitserve pull smollm2", "hf download org/m")
    assert list(model_advice(Topology(ModelAsked("org/m"), group), MODEL)) == []


def test_a_kv_tier_must_fit_into_shared_memory() -> None:
    groups = (WorkerGroup(kv_tier_memory_bytes=ByteSize(8 * GIB)), WorkerGroup())
    topology = Topology(ModelAsked("m"), groups)
    assert list(tier_advice(topology, machine(shm_bytes=8 * GIB, shm_free_bytes=8 * GIB))) == []
    (small,) = tier_advice(topology, machine(shm_bytes=GIB, shm_free_bytes=GIB))
    assert (small.level, small.about) == ("error", "start")
    assert "is 8 GiB, and /dev/shm has 1 GiB" in small.says
    (full,) = tier_advice(topology, machine(shm_bytes=9 * GIB, shm_free_bytes=GIB))
    assert (full.level, full.about) == ("warning", "shm")
    assert "has 1 GiB free" in full.says
    without = Topology(ModelAsked("m"), (WorkerGroup(),))
    assert list(tier_advice(without, machine(shm_bytes=0, shm_free_bytes=0))) == []


def test_without_a_gpu_workers_on_gpus_would_not_start() -> None:
    topology, plan = on_gpus(kv_cache_memory_bytes=ByteSize(GIB))
    (one,) = gpu_advice(topology, plan, [])
    assert (one.level, one.about) == ("error", "gpu")


def test_pools_and_weights_that_a_gpu_cannot_hold_are_added_up() -> None:
    topology, plan = on_gpus(kv_cache_memory_bytes=ByteSize(60 * GIB))
    (one,) = gpu_advice(topology, plan, [H200])
    assert one.level == "error"
    assert "2 workers ask for 150 GiB" in one.says


def test_shards_on_gpus_have_a_part_of_the_weights_each() -> None:
    topology, plan = on_gpus(
        engine="vllm",
        tensor_parallel_size=3,
        devices=(0, 1, 2),
        kv_cache_memory_bytes=ByteSize(60 * GIB),
    )
    assert [one.says for one in gpu_advice(topology, plan, [H200])] == []
    (one,) = gpu_advice(topology, plan, [Gpu(0, "H200", 129 * GIB, 129 * GIB)])
    assert "2 workers ask for 130 GiB" in one.says


def test_shards_on_the_cpu_take_nothing_of_a_gpu() -> None:
    topology = Topology(ModelAsked("m"), (WorkerGroup(tensor_parallel_size=4),))
    plan = resolve(topology, HOST, FACTS, Paths("/run/x", "python"))
    assert list(gpu_advice(topology, plan, [Gpu(0, "H200", GIB, GIB)])) == []


def test_memory_that_others_hold_is_a_warning() -> None:
    topology, plan = on_gpus(kv_cache_memory_bytes=ByteSize(4 * GIB))
    assert list(gpu_advice(topology, plan, [H200])) == []
    (one,) = gpu_advice(topology, plan, [Gpu(0, "H200", 140 * GIB, 20 * GIB)])
    assert one.level == "warning"
    assert "has 20 GiB free" in one.says


def test_a_share_of_a_gpu_counts_by_its_size() -> None:
    topology, plan = on_gpus(gpu_memory_utilization=0.5)
    (one,) = gpu_advice(topology, plan, [Gpu(0, "H200", 140 * GIB, 100 * GIB)])
    assert "ask for 140 GiB" in one.says
