"""The plan: cores, memory, names, command lines."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.errors import ConfigError
from splitserve.launch.cores import divide, share_cores
from splitserve.launch.plan import MachineFacts, ModelFacts, Plan, resolve
from splitserve.launch.sizes import ByteSize
from splitserve.launch.spec import Paths
from splitserve.launch.topology import (
    FakeCosts,
    GatewayAsked,
    ModelAsked,
    Topology,
    WorkerGroup,
)

GIB = 1 << 30
MACHINE = MachineFacts(cores=(0, 1, 2, 3), memory_bytes=16 * GIB)
# SmolLM2-135M: 30 layers, 3 KV heads of 64, 16-bit.
MODEL = ModelFacts(
    kv_token_bytes=2 * 30 * 3 * 64 * 2,
    max_model_len=8192,
    weight_bytes=270 << 20,
    num_kv_heads=3,
)
PATHS = Paths(run_dir="/run/x", python="python")

groups = st.lists(
    st.builds(
        WorkerGroup,
        role=st.sampled_from(["colocated", "prefill", "decode"]),
        count=st.integers(1, 5),
        engine=st.just("fake"),
    ),
    min_size=1,
    max_size=4,
)


def planned(*workers: WorkerGroup, model: ModelAsked | None = None, **gateway: object) -> Plan:
    topology = Topology(
        model=model or ModelAsked(name="m"),
        workers=workers,
        gateway=GatewayAsked(**gateway),  # type: ignore[arg-type]
    )
    return resolve(topology, MACHINE, MODEL, PATHS)


def flag(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


@given(groups, st.sets(st.integers(0, 200), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_cores_are_partitioned_while_there_are_enough(
    workers: list[WorkerGroup], cores: set[int]
) -> None:
    count = sum(group.count for group in workers)
    shares, warnings = share_cores(workers, sorted(cores))
    assert len(shares) == count
    assert all(share and set(share) <= cores for share in shares)
    taken = [core for share in shares for core in share]
    if count <= len(cores):
        assert sorted(taken) == sorted(cores)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert not warnings
    else:
        assert set(taken) == cores
        assert len(warnings) == 1


@given(groups)
@settings(max_examples=40, deadline=None)
def test_names_addresses_and_roles_fit_together(workers: list[WorkerGroup]) -> None:
    plan = planned(*workers)
    names = [worker.process.name for worker in plan.workers]
    assert len(set(names)) == len(names) == sum(group.count for group in workers)
    for worker in plan.workers:
        process = worker.process
        assert process.name.startswith(f"{process.role}-")
        assert flag(process.argv, "--role") == process.role == worker.group.role
        assert flag(process.argv, "--listen") == process.address
        assert flag(process.argv, "--cores") == ",".join(map(str, process.cores))
        assert process.env["OMP_NUM_THREADS"] == str(len(process.cores))
    listed = plan.gateway.argv
    addresses = [listed[i + 1] for i, part in enumerate(listed) if part == "--worker"]
    assert addresses == [worker.process.address for worker in plan.workers]


def test_a_group_keeps_the_cores_it_names_and_the_rest_share_the_others() -> None:
    shares, warnings = share_cores(
        [WorkerGroup(count=2, cores=(3, 2)), WorkerGroup(), WorkerGroup()], MACHINE.cores
    )
    assert shares == [(2,), (3,), (0,), (1,)]
    assert not warnings


def test_workers_without_cores_of_their_own_share_all_when_none_are_left() -> None:
    shares, warnings = share_cores([WorkerGroup(cores=(0, 1)), WorkerGroup()], [0, 1])
    assert shares == [(0, 1), (0, 1)]
    assert "2 workers share 2 cores" in warnings[0]


def test_a_core_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cores \[7, 9\] are not among .* \(0, 1, 2, 3\)"):
        share_cores([WorkerGroup(cores=(1, 7, 9))], MACHINE.cores)


def test_dividing_nothing_gives_nothing() -> None:
    assert divide([1, 2], 0) == []
    assert divide([], 2) == [(), ()]


def test_the_pool_is_counted_in_whole_blocks() -> None:
    plan = planned(WorkerGroup(kv_cache_memory_bytes=ByteSize(GIB)))
    assert plan.workers[0].kv_tokens == GIB // (MODEL.kv_token_bytes * 16) * 16 == 46_592
    fake = planned(WorkerGroup(engine="fake", fake=FakeCosts(num_blocks=600)))
    assert fake.workers[0].kv_tokens == 9600


def test_more_memory_than_there_is_is_refused_with_the_sum() -> None:
    with pytest.raises(ConfigError, match=r"KV pools of 15\.5 GiB and weights of 540 MiB are more"):
        planned(WorkerGroup(count=2, kv_cache_memory_bytes=ByteSize(31 * GIB // 4)))


def test_the_tier_is_counted_once_for_the_host() -> None:
    tier = ByteSize(9 * GIB)
    plan = planned(WorkerGroup(count=2, engine="fake", kv_tier_memory_bytes=tier))
    for worker in plan.workers:
        assert flag(worker.process.argv, "--kv-tier-memory-bytes") == str(9 * GIB)
        assert "--kv-tier-disk-path" not in worker.process.argv
    with pytest.raises(
        ConfigError, match=r"and a KV tier of 16 GiB are more .* lower kv_tier_memo"
    ):
        planned(WorkerGroup(kv_tier_memory_bytes=ByteSize(16 * GIB)))


def test_every_worker_of_a_group_is_given_its_tier() -> None:
    group = WorkerGroup(count=2, kv_tier_disk_path="/kv", kv_tier_disk_bytes=ByteSize(64 * GIB))
    for worker in planned(group).workers:
        argv = worker.process.argv
        assert flag(argv, "--kv-tier-memory-bytes") == "0"
        assert flag(argv, "--kv-tier-disk-path") == "/kv"
        assert flag(argv, "--kv-tier-disk-bytes") == str(64 * GIB)
    (without,) = planned(WorkerGroup()).workers
    assert not any(part.startswith("--kv-tier") for part in without.process.argv)


def test_the_shards_of_a_worker_of_ours_are_in_one_process_and_weigh_as_much_as_the_whole() -> None:
    whole = WorkerGroup(kv_cache_memory_bytes=ByteSize(8 * GIB))
    split = msgspec.structs.replace(whole, tensor_parallel_size=3)
    plan = planned(split)
    assert flag(plan.workers[0].process.argv, "--tensor-parallel-size") == "3"
    assert plan.workers[0].kv_tokens == planned(whole).workers[0].kv_tokens
    assert plan.workers[0].process.cores == MACHINE.cores
    with pytest.raises(ConfigError, match=r"KV pools of 16 GiB and weights of 540 MiB are more"):
        planned(msgspec.structs.replace(split, count=2))


def test_shards_have_equal_shares_of_the_kv_heads() -> None:
    two = WorkerGroup(tensor_parallel_size=2)
    with pytest.raises(
        ConfigError,
        match=r"workers\[1\].tensor_parallel_size must divide the number of KV heads, 3 \(got 2\)",
    ):
        planned(WorkerGroup(), two)
    fake = WorkerGroup(engine="fake", tensor_parallel_size=2, fake=FakeCosts(num_kv_heads=6))
    assert planned(fake).workers
    with pytest.raises(ConfigError, match="must divide the number of KV heads, 1"):
        planned(WorkerGroup(engine="fake", tensor_parallel_size=2))


def test_fake_engines_and_gpus_take_no_host_memory() -> None:
    huge = ByteSize(64 * GIB)
    for group in (
        WorkerGroup(engine="fake", kv_cache_memory_bytes=huge),
        WorkerGroup(device="cuda", kv_cache_memory_bytes=huge),
    ):
        assert planned(group).workers[0].group is group
    assert planned(WorkerGroup(device="cuda", count=2)).workers[0].kv_tokens is None


def test_a_gpu_worker_is_told_its_gpu_and_its_share_and_keeps_all_cores() -> None:
    plan = planned(WorkerGroup(device="cuda", count=2, gpu_memory_utilization=0.8))
    for number, worker in enumerate(plan.workers):
        process = worker.process
        assert worker.device == flag(process.argv, "--device") == f"cuda:{number}"
        assert flag(process.argv, "--connector") == "cuda_ipc"
        assert flag(process.argv, "--gpu-memory-utilization") == "0.8"
        assert flag(process.argv, "--max-num-seqs") == "256"
        assert flag(process.argv, "--max-num-batched-tokens") == "8192"
        assert "--kv-cache-memory-bytes" not in process.argv
        # Peers open each other's memory: both have to see both GPUs.
        assert process.env == {}
        assert process.cores == ()
        assert "--cores" not in process.argv
    assert plan.warnings == ()


def test_a_gpu_worker_keeps_to_the_cores_and_the_pool_that_its_group_names() -> None:
    group = WorkerGroup(device="cuda", cores=(1, 2), kv_cache_memory_bytes=ByteSize(GIB))
    (worker,) = planned(group).workers
    assert flag(worker.process.argv, "--cores") == "1,2"
    assert flag(worker.process.argv, "--kv-cache-memory-bytes") == str(GIB)
    assert "--gpu-memory-utilization" not in worker.process.argv
    assert worker.kv_tokens == 46_592


def test_workers_on_gpus_leave_the_cores_to_the_others() -> None:
    shares, _ = share_cores([WorkerGroup(device="cuda", count=3), WorkerGroup()], MACHINE.cores)
    assert shares == [(), (), (), (0, 1, 2, 3)]


def test_a_gpu_that_is_not_there_is_refused_before_anything_starts() -> None:
    topology = Topology(model=ModelAsked(name="m"), workers=(WorkerGroup(device="cuda", count=2),))
    machine = MachineFacts(cores=(0,), memory_bytes=GIB, gpus=1)
    with pytest.raises(ConfigError, match="there is no GPU 1, this machine has 1"):
        resolve(topology, machine, MODEL, PATHS)


def test_a_length_beyond_the_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_model_len: 9000 is more than the model's own 8192"):
        planned(WorkerGroup(), model=ModelAsked(name="m", max_model_len=9000))


def test_a_pool_too_small_for_the_longest_request_is_warned_of() -> None:
    small = WorkerGroup(kv_cache_memory_bytes=ByteSize(64 << 20))
    assert "colocated-0: its KV pool holds 2912 tokens" in planned(small).warnings[0]
    assert planned(small, model=ModelAsked(name="m", max_model_len=2048)).warnings == ()


def test_an_api_that_others_can_reach_is_warned_of() -> None:
    assert planned(WorkerGroup()).warnings == ()
    assert "asks for no API key" in planned(WorkerGroup(), host="0.0.0.0").warnings[0]


def test_the_command_lines_carry_every_setting() -> None:
    model = ModelAsked(
        name="m",
        served_model_name="n",
        dtype="float32",
        max_model_len=4096,
        load_format="dummy",
        seed=3,
        block_size=32,
    )
    group = WorkerGroup(
        engine="fake",
        max_num_seqs=7,
        max_num_batched_tokens=99,
        enable_prefix_caching=False,
        tensor_parallel_size=2,
        fake=FakeCosts(
            step_ms=1.5,
            prefill_us_per_token=2,
            decode_us_per_seq=3,
            num_blocks=600,
            num_kv_heads=4,
        ),
    )
    plan = planned(group, model=model, port=0, policy="round_robin", request_timeout_s=9.0)
    worker, gateway = plan.workers[0].process.argv, plan.gateway.argv
    assert worker[:5] == ("python", "-m", "splitserve", "worker", "m")
    assert gateway[:5] == ("python", "-m", "splitserve", "gateway", "m")
    for name, value in {
        "--engine": "fake",
        "--connector": "shm",
        "--device": "cpu",
        "--dtype": "float32",
        "--max-model-len": "4096",
        "--load-format": "dummy",
        "--seed": "3",
        "--block-size": "32",
        "--kv-cache-memory-bytes": str(GIB),
        "--max-num-seqs": "7",
        "--max-num-batched-tokens": "99",
        "--fake-step-ms": "1.5",
        "--fake-num-blocks": "600",
        "--fake-num-kv-heads": "4",
        "--tensor-parallel-size": "2",
    }.items():
        assert flag(worker, name) == value
    assert "--no-enable-prefix-caching" in worker
    for name, value in {
        "--port": "0",
        "--served-model-name": "n",
        "--max-model-len": "4096",
        "--policy": "round_robin",
        "--request-timeout-s": "9.0",
    }.items():
        assert flag(gateway, name) == value
