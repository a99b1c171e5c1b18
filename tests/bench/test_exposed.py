"""Readings of ``bench exposed`` from records, and the order of its rounds."""

import math

import pytest
from msgspec.structs import replace

from bench.made_records import record
from splitserve.bench.exposed import (
    COMPARED,
    connector_readings,
    exposed_reading,
    ratio_readings,
    turns_of,
    usable_connectors,
)
from splitserve.lab.load.record import RequestRecord


def told(exposed_ms: float, *times: float) -> RequestRecord:
    return replace(record(0.0, *times), metrics={"kv_exposed_ms": exposed_ms})


def test_rounds_go_there_and_back() -> None:
    assert list(turns_of(["a", "b"], 3)) == [
        (1, "a"),
        (1, "b"),
        (2, "b"),
        (2, "a"),
        (3, "a"),
        (3, "b"),
    ]


def test_the_times_are_those_of_the_answers_that_have_them() -> None:
    records = [
        told(4.0, 0.1, 0.15),
        told(8.0, 0.3, 0.32),
        record(0.0, 0.2, 0.23),
        record(0.0, 0.1, error="500"),
    ]
    reading = exposed_reading("tcp", 2, records)
    assert (reading.requests, reading.errors, reading.first_error) == (4, 1, "500")
    assert (reading.handoffs, reading.untold) == (2, 1)
    assert (reading.exposed_p50, reading.exposed_p95, reading.exposed_max) == (4.0, 8.0, 8.0)
    assert (reading.ttft_p50, reading.ttft_p95) == pytest.approx((200.0, 300.0))
    assert (reading.itl_p50, reading.itl_p95) == pytest.approx((30.0, 50.0))


def test_a_round_without_a_handoff_has_no_times_of_one() -> None:
    reading = exposed_reading("tcp", 1, [record(0.0, 0.1, 0.2)])
    assert (reading.handoffs, reading.untold) == (0, 1)
    assert math.isnan(reading.exposed_p50)
    assert math.isnan(reading.exposed_max)


def test_ratios_are_within_a_round_whatever_its_order() -> None:
    readings = [
        exposed_reading("shm", 1, [told(2.0, 0.1, 0.2)]),
        exposed_reading("tcp", 1, [told(3.0, 0.2, 0.3)]),
        exposed_reading("tcp", 2, [told(40.0, 0.1, 0.2)]),
        exposed_reading("shm", 2, [told(10.0, 0.1, 0.2)]),
    ]
    shm, tcp = connector_readings(readings)
    assert (shm.connector, shm.rounds, shm.handoffs) == ("shm", 2, 2)
    assert (shm.exposed_p50, shm.exposed_p50_min, shm.exposed_p50_max) == (2.0, 2.0, 10.0)
    assert (tcp.exposed_p50, tcp.exposed_p50_min, tcp.exposed_p50_max) == (3.0, 3.0, 40.0)
    ratios = ratio_readings(readings)
    assert [one.reading for one in ratios] == list(COMPARED)
    exposed, ttft = ratios[0], ratios[1]
    assert (exposed.connector, exposed.over, exposed.rounds) == ("tcp", "shm", 2)
    assert (exposed.median, exposed.min, exposed.max) == (1.5, 1.5, 4.0)
    assert (ttft.min, ttft.max) == pytest.approx((1.0, 2.0))


def test_shared_memory_can_be_used_wherever_this_runs() -> None:
    assert usable_connectors()[0] == "shm"
