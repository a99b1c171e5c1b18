"""What is read from a gateway's /metrics page."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from splitserve.doctor.findings import Handoffs, RunningLink
from splitserve.doctor.told import told_by
from splitserve.ids import RequestId
from splitserve.processes.gateway_metrics import RouterMetrics, WorkerMetrics
from splitserve.protocol.telemetry import KVCounts, LinkWay, Load
from splitserve.router.workers.record import WorkerSnapshot

KV = KVCounts(free=1, cached=2, held=3, granted=4, exported=5, quarantined=6)


def snapshot(name: str, *, connected: bool, breaker: str) -> WorkerSnapshot:
    return WorkerSnapshot(
        worker=name,
        role="decode",
        address="unix:/x",
        connected=connected,
        unusable="",
        in_flight=0,
        kv=KV if connected else None,
        load=Load(KV, 0, 0, 0, 0, 0, 0, 0, linked=("prefill-0",)) if connected else None,
        breaker=breaker,
        aborted_strays=0,
        failed_strays=0,
        connector="tcp",
    )


def prefill() -> WorkerSnapshot:
    """Linked to one of them by a way that is not the fastest."""
    there = snapshot("prefill-0", connected=True, breaker="closed")
    return replace(
        there, role="prefill", load=Load(KV, *[0] * 7, ways=(LinkWay("decode-0", "tcp", "shm"),))
    )


def page() -> str:
    registry, router = CollectorRegistry(), RouterMetrics()
    router.register(registry)
    router.handoff(RequestId("a"), 100, 0.0, 0.0, 0.010)
    router.handoff(RequestId("b"), 300, 0.0, 0.0, 0.030)
    router.fallback("local", "prefill_lost")
    workers = [
        snapshot("decode-0", connected=True, breaker="open"),
        snapshot("decode-1", connected=False, breaker="closed"),
        prefill(),
    ]
    registry.register(WorkerMetrics(lambda: workers))
    return generate_latest(registry).decode()


def test_workers_are_read_as_the_gateway_shows_them() -> None:
    there, gone, _ = told_by(page()).workers
    assert (there.name, there.connected, there.breaker) == ("decode-0", True, "open")
    assert there.kv_blocks == {
        "free": 1,
        "cached": 2,
        "held": 3,
        "granted": 4,
        "exported": 5,
        "quarantined": 6,
    }
    assert (gone.name, gone.connected, gone.breaker, gone.kv_blocks) == (
        "decode-1",
        False,
        "closed",
        {},
    )


def test_handoffs_are_counted_and_their_exposed_time_is_the_mean() -> None:
    handoffs = told_by(page()).handoffs
    assert (handoffs.count, handoffs.kv_bytes) == (2, 400)
    assert handoffs.exposed_ms == pytest.approx(20.0)
    assert handoffs.fallbacks == {"local: prefill_lost": 1}


def test_links_are_read() -> None:
    assert told_by(page()).links == (RunningLink("prefill-0", "decode-0", "tcp", "tcp", "shm"),)


@pytest.mark.parametrize("text", ["", "<html>not found</html>", "a_total 1\n"])
def test_a_page_of_others_tells_nothing(text: str) -> None:
    told = told_by(text)
    assert (told.workers, told.links, told.handoffs) == ((), (), Handoffs(0, 0, 0.0, {}))
