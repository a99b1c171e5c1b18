"""What a gateway tells Prometheus of its router and its workers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from splitserve.ids import RequestId
from splitserve.metrics import LATENCY_BUCKETS_S, Counter, Histogram
from splitserve.protocol.telemetry import KVCounts
from splitserve.router.policy.base import Placement
from splitserve.router.workers.record import WorkerSnapshot

STATES: Final = ("free", "cached", "held", "granted", "exported", "quarantined")
"""Design: KV lifetime. A worker's values always add up to its pool."""


class RouterMetrics:
    """Implements RouterObserver with counters."""

    def __init__(self) -> None:
        self._bytes = Counter("splitserve_handoff_bytes", "KV bytes moved between workers")
        self._exposed = Histogram(
            "splitserve_handoff_exposed_seconds",
            "From the first token sampled to the last KV byte in place",
            LATENCY_BUCKETS_S,
        )
        self._prefill = Histogram(
            "splitserve_handoff_prefill_seconds",
            "From a prompt's first chunk to its first token, in the prefill worker",
            LATENCY_BUCKETS_S,
        )
        self._queue = Histogram(
            "splitserve_handoff_queue_seconds",
            "From a prompt's arrival in the prefill worker to its first chunk",
            LATENCY_BUCKETS_S,
        )
        self._fallback = Counter(
            "splitserve_fallback", "Steps down the failure ladder", ["rung", "reason"]
        )
        self._ended = Counter("splitserve_generations", "Answers by outcome", ["outcome"])

    def register(self, registry: CollectorRegistry) -> None:
        for collector in (
            self._bytes,
            self._exposed,
            self._prefill,
            self._queue,
            self._fallback,
            self._ended,
        ):
            registry.register(collector)

    def placed(self, request_id: RequestId, placement: Placement) -> None:
        pass

    def phase(self, request_id: RequestId, phase: str, seconds: float) -> None:
        pass

    def handoff(
        self, request_id: RequestId, nbytes: int, queue_s: float, prefill_s: float, exposed_s: float
    ) -> None:
        del request_id
        self._bytes.add(amount=nbytes)
        self._queue.observe(queue_s)
        self._prefill.observe(prefill_s)
        self._exposed.observe(exposed_s)

    def fallback(self, rung: str, reason: str) -> None:
        self._fallback.add(rung, reason)

    def ended(self, request_id: RequestId, outcome: str) -> None:
        del request_id
        self._ended.add(outcome)


class WorkerMetrics(Collector):
    """Reads the router's view of its workers when Prometheus asks."""

    def __init__(self, snapshot: Callable[[], Sequence[WorkerSnapshot]]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        blocks = GaugeMetricFamily(
            "splitserve_kv_blocks", "KV blocks by state", labels=["worker", "state"]
        )
        connected = GaugeMetricFamily(
            "splitserve_worker_connected", "1 while the worker is connected", labels=["worker"]
        )
        running = GaugeMetricFamily(
            "splitserve_requests_running", "Sequences in the running batch", labels=["worker"]
        )
        waiting = GaugeMetricFamily(
            "splitserve_requests_waiting", "Sequences waiting for their turn", labels=["worker"]
        )
        preempted = CounterMetricFamily(
            "splitserve_preemptions", "Sequences set back to make room", labels=["worker"]
        )
        for worker in self._snapshot():
            connected.add_metric([worker.worker], float(worker.connected))
            if worker.kv is not None:
                for state, count in _by_state(worker.kv):
                    blocks.add_metric([worker.worker, state], count)
            if worker.load is not None:
                running.add_metric([worker.worker], worker.load.running)
                waiting.add_metric([worker.worker], worker.load.waiting)
                preempted.add_metric([worker.worker], worker.load.preemptions)
        yield from (blocks, connected, running, waiting, preempted)


def _by_state(kv: KVCounts) -> list[tuple[str, int]]:
    counts = (kv.free, kv.cached, kv.held, kv.granted, kv.exported, kv.quarantined)
    return list(zip(STATES, counts, strict=True))
