"""The copier for GPUs over a driver that is played: what it takes it gives back, in trouble too."""

import ctypes
from collections.abc import Iterator

import pytest

from fake_cuda_driver import FakeDriver, Result, cuda_copier, playing
from splitserve.errors import BugError, ConfigError, SplitserveError, UnavailableError
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.tier.copier import BlockCopier

LAYOUT = KVLayout("bfloat16", 3, 2, 4, 2, 6, 2)
POOL = ctypes.create_string_buffer(LAYOUT.pool_bytes)


@pytest.fixture
def driver() -> Iterator[FakeDriver]:
    with playing() as driver:
        yield driver


def make(device: str = "cuda:0") -> BlockCopier:
    return cuda_copier(MemoryRegion(ctypes.addressof(POOL), LAYOUT.pool_bytes, device), LAYOUT)


def test_all_is_given_back_and_no_context_is_left(driver: FakeDriver) -> None:
    copier = make()
    assert [len(memory) for memory in driver.pinned.values()] == [
        LAYOUT.block_bytes * LAYOUT.num_layers
    ]
    copier.to_host(1)
    copier.landing(2)
    copier.from_host(2)
    assert driver.current == []
    copier.close()
    copier.close()
    assert (driver.pinned, driver.streams, driver.retained, driver.current) == ({}, 0, 0, [])


def test_after_close_it_is_not_used(driver: FakeDriver) -> None:
    copier = make()
    copier.close()
    for use in (copier.to_host, copier.landing):
        with pytest.raises(BugError, match="after close"):
            use(0)


def test_only_what_has_landed_is_brought(driver: FakeDriver) -> None:
    copier = make()
    copier.landing(1)
    with pytest.raises(BugError, match="landed for block 2"):
        copier.from_host(2)
    copier.landing(1)
    copier.to_host(1)
    with pytest.raises(BugError, match="landed for block 1"):
        copier.from_host(1)


def test_what_is_put_into_a_landing_is_not_in_the_pool_before(driver: FakeDriver) -> None:
    copier, before = make(), POOL.raw
    for part in copier.landing(0):
        part[:] = bytes([9]) * len(part)
    assert POOL.raw == before
    copier.from_host(0)
    assert POOL.raw != before


@pytest.mark.parametrize("call", ["cuMemcpyDtoHAsync", "cuStreamQuery"])
def test_a_broken_device_is_said_and_the_context_left(driver: FakeDriver, call: str) -> None:
    copier = make()
    driver.broken[call] = Result.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(UnavailableError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        copier.to_host(0)
    assert driver.current == []


@pytest.mark.parametrize(
    ("device", "broken", "error", "says"),
    [
        ("cuda:1", "", ConfigError, "INVALID_DEVICE"),
        ("cuda:0", "cuMemHostAlloc", UnavailableError, "OUT_OF_MEMORY"),
        ("cuda:0", "cuStreamCreate", UnavailableError, "OUT_OF_MEMORY"),
        ("cuda", "", BugError, "not on a GPU"),
    ],
    ids=["no such GPU", "no pinned memory", "no stream", "no number"],
)
def test_what_cannot_be_opened_is_said(
    driver: FakeDriver, device: str, broken: str, error: type[SplitserveError], says: str
) -> None:
    driver.broken[broken] = Result.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(error, match=says):
        make(device)
    assert driver.current == []
