"""The client's capacity, on a server process of its own."""

import pytest

from splitserve.lab.mock.capacity import (
    Capacity,
    CapacityLoad,
    measure_capacity,
    measure_spread,
)

LOAD = CapacityLoad(rate=100, duration_s=0.3, prompt_tokens=16, max_tokens=4, gap_s=0.001)


@pytest.mark.parametrize("processes", [1, 2])
async def test_every_request_of_the_load_is_sent_and_answered(processes: int) -> None:
    one = processes == 1
    capacity = await (measure_capacity(LOAD) if one else measure_spread(LOAD, processes))
    assert capacity.processes == processes
    assert capacity.requests > 10
    assert capacity.failed == 0
    assert 0 <= capacity.lag_p50_s <= capacity.lag_p99_s
    assert capacity.cpu > 0 or not one


def test_a_client_that_is_late_busy_or_failing_is_not_enough() -> None:
    assert Capacity(100, 0, 0.0001, 0.001, 0.7).within(0.001)
    assert not Capacity(100, 0, 0.0001, 0.0011, 0.5).within(0.001)
    assert not Capacity(100, 0, 0.0001, 0.0005, 0.71).within(0.001)
    assert not Capacity(100, 1, 0.0001, 0.0005, 0.5).within(0.001)
