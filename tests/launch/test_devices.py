"""Which worker gets which GPU."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.errors import ConfigError
from splitserve.launch.devices import gpu_numbers, share_devices
from splitserve.launch.sizes import ByteSize
from splitserve.launch.topology import WorkerGroup

ON_GPU = WorkerGroup(device="cuda")


def groups(*shapes: tuple[int, tuple[int, ...]]) -> list[WorkerGroup]:
    return [WorkerGroup(device="cuda", count=count, devices=devices) for count, devices in shapes]


def test_each_worker_takes_the_next_gpu_over_all_groups() -> None:
    workers = [*groups((2, ())), WorkerGroup(count=2), *groups((1, ()))]
    assert share_devices(workers, None) == ["cuda:0", "cuda:1", "cpu", "cpu", "cuda:2"]


def test_groups_without_names_leave_the_gpus_that_others_name() -> None:
    workers = groups((2, ()), (2, (2, 0)))
    assert share_devices(workers, 4) == ["cuda:1", "cuda:3", "cuda:2", "cuda:0"]


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["cpu", "cuda"])), min_size=1, max_size=5
    ),
    st.lists(st.integers(0, 9), max_size=3, unique=True),
)
@settings(max_examples=60, deadline=None)
def test_no_gpu_is_given_twice_unless_named_twice(
    shapes: list[tuple[int, str]], named: list[int]
) -> None:
    workers = [WorkerGroup(count=count, device=device) for count, device in shapes]
    workers += groups((len(named), tuple(named))) if named else []
    given_ones = share_devices(workers, None)
    on_gpu = [device for device in given_ones if device != "cpu"]
    assert len(given_ones) == sum(group.count for group in workers)
    assert len(set(on_gpu)) == len(on_gpu)
    assert given_ones[len(given_ones) - len(named) :] == [f"cuda:{number}" for number in named]


@pytest.mark.parametrize(
    ("gpus", "workers"),
    [(1, groups((2, ()))), (1, groups((1, (1,)))), (2, groups((1, ()), (2, ())))],
    ids=["count", "named", "groups"],
)
def test_more_gpus_than_there_are_is_refused(gpus: int, workers: list[WorkerGroup]) -> None:
    with pytest.raises(ConfigError, match=rf"no GPU {gpus}, this machine has {gpus}; .*`devices`"):
        share_devices(workers, gpus)
    assert share_devices(workers, gpus + 1)


def test_a_machine_that_does_not_tell_its_gpus_is_trusted_to_have_them() -> None:
    assert share_devices(groups((9, ())), None)[-1] == "cuda:8"


def shared(**settings: object) -> list[WorkerGroup]:
    return [
        WorkerGroup(device="cuda", role=role, devices=(0,), **settings)  # type: ignore[arg-type]
        for role in ("prefill", "decode")
    ]


def test_two_workers_may_share_a_gpu_whose_memory_is_enough() -> None:
    for workers in (
        shared(gpu_memory_utilization=0.5),
        shared(kv_cache_memory_bytes=ByteSize(1 << 30)),
        [shared(kv_cache_memory_bytes=ByteSize(1 << 30))[0], shared()[1]],
        [WorkerGroup(device="cuda", count=2, devices=(0, 0), gpu_memory_utilization=0.45)],
    ):
        assert share_devices(workers, 1) == ["cuda:0", "cuda:0"]


def test_two_workers_that_both_want_most_of_a_gpu_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"2 share GPU 0 and ask for 1\.8 of its memory; lower"):
        share_devices(shared(), 1)


def test_ten_tenths_are_a_whole() -> None:
    workers = [WorkerGroup(device="cuda", count=10, devices=(0,) * 10, gpu_memory_utilization=0.1)]
    assert set(share_devices(workers, 1)) == {"cuda:0"}


def test_a_worker_spread_over_gpus_takes_them_side_by_side() -> None:
    spread = WorkerGroup(engine="vllm", device="cuda", count=2, tensor_parallel_size=2)
    given = share_devices([*groups((1, ())), spread, WorkerGroup()], 5)
    assert given == ["cuda:0", "cuda:1,2", "cuda:3,4", "cpu"]
    assert gpu_numbers(given) == (0, 1, 2, 3, 4)
    with pytest.raises(ConfigError, match="no GPU 4, this machine has 4"):
        share_devices([*groups((1, ())), spread], 4)
