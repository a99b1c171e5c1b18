"""``engine = "vllm"``: command lines, environments and addresses."""

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from splitserve.errors import ConfigError
from splitserve.launch.plan import MachineFacts, ModelFacts, Plan, PlannedWorker, resolve
from splitserve.launch.sizes import ByteSize
from splitserve.launch.spec import Paths
from splitserve.launch.topology import GatewayAsked, ModelAsked, Topology, WorkerGroup, checked

GIB = 1 << 30
PORTS = tuple(range(20_000, 20_040))
MACHINE = MachineFacts(cores=(0, 1, 2, 3), memory_bytes=16 * GIB, free_ports=PORTS, gpus=8)
FOLDER = ModelFacts(22_528, 8192, 270 << 20, checkpoint="/models/m")
PATHS = Paths(run_dir="/run/splitserve-x1", python="python")
PREFILL = WorkerGroup(engine="vllm", role="prefill")
DECODE = WorkerGroup(engine="vllm", role="decode")


def group(**keys: Any) -> WorkerGroup:
    return WorkerGroup(engine="vllm", **keys)


def planned(*workers: WorkerGroup, model: ModelFacts = FOLDER, **gateway: Any) -> Plan:
    asked = ModelAsked(name="m", max_model_len=2048)
    topology = Topology(model=asked, workers=workers, gateway=GatewayAsked(**gateway))
    return resolve(checked(topology), MACHINE, model, PATHS)


def flag(worker: PlannedWorker, name: str) -> str:
    argv = worker.process.argv
    return argv[argv.index(name) + 1]


def kv(worker: PlannedWorker) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(flag(worker, "--kv-transfer-config"))
    return config


def query(address: str) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(address[5:]).query).items()}


def test_an_instance_is_vllm_serve_behind_a_guard() -> None:
    (worker,) = planned(
        group(kv_cache_memory_bytes=ByteSize(GIB), args=("--enforce-eager",))
    ).workers
    own, vllm = worker.process.argv[:3], worker.process.argv[worker.process.argv.index("--") + 1 :]
    assert own == ("python", "-m", "splitserve.processes.guard")
    assert flag(worker, "--url") == "http://127.0.0.1:20000"
    assert flag(worker, "--cores") == "0,1,2,3"
    assert vllm == (
        *("vllm", "serve", "/models/m", "--host", "127.0.0.1", "--port", "20000"),
        *("--served-model-name", "m", "--dtype", "auto", "--load-format", "auto", "--seed", "0"),
        *("--max-model-len", "2048", "--max-num-seqs", "64", "--tensor-parallel-size", "1"),
        *("--kv-cache-memory-bytes", str(GIB), "--enable-prefix-caching", "--enforce-eager"),
    )


def test_keys_of_the_group_become_vllms_flags() -> None:
    (worker,) = planned(
        group(
            command=("nice", "/opt/vllm/bin/vllm"),
            max_num_seqs=7,
            max_num_batched_tokens=99,
            block_size=32,
            enable_prefix_caching=False,
            startup_timeout_s=60.0,
            env={"VLLM_LOGGING_LEVEL": "DEBUG", "OMP_NUM_THREADS": "9"},
        )
    ).workers
    argv = worker.process.argv
    assert argv[argv.index("--") + 1 :][:3] == ("nice", "/opt/vllm/bin/vllm", "serve")
    assert flag(worker, "--max-num-seqs") == "7"
    assert flag(worker, "--max-num-batched-tokens") == "99"
    assert flag(worker, "--block-size") == "32"
    assert flag(worker, "--within-s") == "60.0"
    assert "--no-enable-prefix-caching" in argv
    assert worker.process.env["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert worker.process.env["OMP_NUM_THREADS"] == "9"


def test_a_split_on_the_cpu_talks_nixl_over_ports_of_its_own() -> None:
    prefill, decode = planned(PREFILL, DECODE).workers
    assert kv(prefill) == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer",
        "kv_load_failure_policy": "recompute",
        "kv_buffer_device": "cpu",
    }
    assert kv(decode)["kv_role"] == "kv_consumer"
    assert prefill.process.env == {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "20001",
        "UCX_TLS": "tcp,shm",
    }
    assert decode.process.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "20003"
    assert "--block-size" not in prefill.process.argv


def test_peers_on_gpus_see_each_other_their_own_first() -> None:
    prefill, decode = planned(
        group(role="prefill", device="cuda", count=2),
        group(role="decode", device="cuda", tensor_parallel_size=2),
    ).workers[1:]
    assert prefill.process.env["CUDA_VISIBLE_DEVICES"] == "1,0,2,3"
    assert (decode.device, decode.process.env["CUDA_VISIBLE_DEVICES"]) == ("cuda:2,3", "2,3,0,1")
    assert "UCX_TLS" not in decode.process.env
    assert "kv_buffer_device" not in kv(decode)
    assert flag(decode, "--block-size") == "128"
    assert flag(decode, "--gpu-memory-utilization") == "0.9"
    assert flag(decode, "--tensor-parallel-size") == "2"
    assert query(decode.process.address)["tp_size"] == "2"


def test_the_gateway_is_told_what_it_cannot_ask() -> None:
    plan = planned(PREFILL, DECODE, vllm_api_key_file="/keys/vllm")
    argv = plan.gateway.argv
    addresses = [argv[i + 1] for i, part in enumerate(argv) if part == "--worker"]
    assert addresses == [worker.process.address for worker in plan.workers]
    assert addresses[0].startswith("vllm+http://127.0.0.1:20000?")
    assert query(addresses[0]) == {
        "name": "prefill-0",
        "role": "prefill",
        "connector": "NixlConnector",
        "kv_role": "kv_producer",
        "max_num_seqs": "64",
        "side_channel_host": "127.0.0.1",
        "side_channel_port": "20001",
        "tp_size": "1",
    }
    assert argv[argv.index("--vllm-api-key-file") + 1] == "/keys/vllm"
    assert flag(plan.workers[0], "--api-key-file") == "/keys/vllm"


@pytest.mark.parametrize("connector", ["NixlPushConnector", "MooncakeConnector"])
def test_an_engine_id_that_must_be_known_is_given_to_both(connector: str) -> None:
    prefill, _ = planned(
        group(role="prefill", kv_connector=connector), group(role="decode", kv_connector=connector)
    ).workers
    assert kv(prefill)["engine_id"] == "splitserve-x1-prefill-0"
    assert query(prefill.process.address)["engine_id"] == "splitserve-x1-prefill-0"


def test_pulled_kv_has_a_new_engine_id_in_each_life() -> None:
    for worker in planned(PREFILL, DECODE).workers:
        assert "engine_id" not in kv(worker)


def test_settings_of_a_connector_reach_vllm_and_the_gateway() -> None:
    extra = {"shared_storage_path": "/dev/shm/kv"}
    groups = [
        group(role=role, kv_connector="ExampleConnector", kv_connector_extra_config=extra)
        for role in ("prefill", "decode")
    ]
    prefill, _ = planned(*groups).workers
    assert kv(prefill)["kv_connector_extra_config"] == extra
    assert kv(prefill)["kv_role"] == "kv_both"
    assert json.loads(query(prefill.process.address)["kv_connector_extra_config"]) == extra


def test_whole_instances_have_no_connector_unless_one_is_named() -> None:
    (plain,) = planned(group()).workers
    assert "--kv-transfer-config" not in plain.process.argv
    assert query(plain.process.address) == {
        "name": "colocated-0",
        "role": "colocated",
        "max_num_seqs": "64",
    }
    (stored,) = planned(group(kv_connector="OffloadingConnector")).workers
    assert kv(stored)["kv_role"] == "kv_both"


def test_priorities_are_told_where_vllm_keeps_to_them() -> None:
    for args in (("--scheduling-policy", "priority"), ("--scheduling-policy=priority",)):
        (worker,) = planned(group(args=args)).workers
        assert query(worker.process.address)["priorities"] == "1"


def test_ports_count_up_from_those_named_and_the_rest_avoids_them() -> None:
    plan = planned(
        group(role="prefill", count=2, port=20_002, side_channel_port=5600),
        DECODE,
        port=20_000,
    )
    ports = [
        (flag(w, "--port"), query(w.process.address)["side_channel_port"]) for w in plan.workers
    ]
    assert ports == [("20002", "5600"), ("20003", "5601"), ("20001", "20004")]


def test_a_port_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="workers: port 8101 is named twice"):
        planned(group(role="prefill", count=2, port=8100), group(role="decode", port=8101))


def test_instances_that_run_already_are_used_and_not_started() -> None:
    plan = planned(
        group(role="prefill", kv_connector="NixlConnector", url=("http://a:1", "https://b:2/v")),
        group(role="decode", url=("http://c:3",), facts={"tp_size": 2}, max_num_seqs=9),
    )
    assert plan.workers == ()
    assert [worker.name for worker in plan.attached] == ["prefill-0", "prefill-1", "decode-0"]
    addresses = [worker.address for worker in plan.attached]
    assert addresses[1].startswith("vllm+https://b:2/v?name=prefill-1&role=prefill&")
    assert query(addresses[2])["tp_size"] == "2"
    assert query(addresses[2])["max_num_seqs"] == "9"
    assert plan.gateway.argv.count("--worker") == 3


def test_instances_may_run_already_beside_others_that_are_started() -> None:
    plan = planned(group(role="prefill", url=("http://a:1",)), DECODE)
    assert [worker.process.name for worker in plan.workers] == ["decode-0"]
    assert plan.gateway.argv.count("--worker") == 2


def test_a_fact_that_a_connector_needs_is_asked_for() -> None:
    push = {"kv_connector": "NixlPushConnector", "url": ("http://a:1",)}
    with pytest.raises(ConfigError, match=r"^prefill-0: NixlPushConnector needs engine_id, side_"):
        planned(group(role="prefill", **push), group(role="decode", **push))


def test_a_model_that_vllm_cannot_read_is_refused() -> None:
    gguf = ModelFacts(22_528, 8192, 98 << 20)
    with pytest.raises(ConfigError, match="'m' is a GGUF file, which vLLM does not read: give a"):
        planned(group(), model=gguf)
    assert planned(group(url=("http://a:1",)), model=gguf).attached


def test_a_hub_id_stays_one_and_may_be_fetched() -> None:
    (worker,) = planned(group(), model=ModelFacts(1, 8192, 1, checkpoint="org/m")).workers
    assert worker.process.argv[worker.process.argv.index("serve") + 1] == "org/m"
    assert "HF_HUB_OFFLINE" not in worker.process.env


def test_memory_is_added_up_for_vllm_too() -> None:
    with pytest.raises(ConfigError, match="are more than the 16 GiB of memory available"):
        planned(group(count=2, kv_cache_memory_bytes=ByteSize(8 * GIB)))
