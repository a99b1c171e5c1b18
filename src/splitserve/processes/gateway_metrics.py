"""What a gateway tells Prometheus of its router and its workers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from splitserve.ids import RequestId
from splitserve.metrics import LATENCY_BUCKETS_S, Counter, Histogram
from splitserve.protocol.telemetry import KVCounts, LinkWay, Load, TierCounts
from splitserve.router.policy.base import Observation, Placement
from splitserve.router.workers.breaker import BreakerState
from splitserve.router.workers.record import WorkerSnapshot

STATES: Final = ("free", "cached", "held", "granted", "exported", "quarantined")
"""Design: KV lifetime. A worker's values always add up to its pool."""

_COUNTED: Final[Sequence[tuple[str, str, Callable[[Load], int]]]] = (
    ("preemptions", "Sequences set back to make room", lambda load: load.preemptions),
    (
        "prompt_tokens_computed",
        "Tokens of prompts whose KV was computed here",
        lambda load: load.computed_tokens,
    ),
    (
        "pulled_tokens",
        "Tokens of prompts whose KV was read from a decode worker and not computed",
        lambda load: load.pulled_tokens,
    ),
    ("pulled_bytes", "KV bytes read from decode workers", lambda load: load.pulled_bytes),
)
"""What workers count since their start."""

_COUNTED_BY_LEVEL: Final[Sequence[tuple[str, str, Callable[[TierCounts], int]]]] = (
    ("hits", "Blocks found in the host's KV tier", lambda tier: tier.hits),
    ("misses", "Blocks looked for there and not found", lambda tier: tier.misses),
    ("bytes", "KV bytes of the blocks found there", lambda tier: tier.nbytes),
    ("evictions", "Blocks sent away to make room for others", lambda tier: tier.evictions),
    ("corrupt", "Blocks removed since they were not what was kept", lambda tier: tier.corrupt),
)
"""The same of each level of their KV tier."""


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
        self._admission = Counter(
            "splitserve_admission", "Requests let in or refused", ["decision", "reason"]
        )
        self._waited = Histogram(
            "splitserve_queue_wait_seconds",
            "From a request's arrival in the router to its first placement",
            LATENCY_BUCKETS_S,
        )
        self._placed = Counter(
            "splitserve_placements",
            "Placements by where the prompt is computed, again after a failure too",
            ["way"],
        )
        self._misjudged = Histogram(
            "splitserve_placement_prediction_error_seconds",
            "How far a prompt's predicted time was from what it took",
            LATENCY_BUCKETS_S,
        )
        self._line = QueueMetrics()

    def register(self, registry: CollectorRegistry) -> None:
        for collector in (
            self._bytes,
            self._exposed,
            self._prefill,
            self._queue,
            self._fallback,
            self._ended,
            self._admission,
            self._waited,
            self._placed,
            self._misjudged,
            self._line,
        ):
            registry.register(collector)

    def placed(self, request_id: RequestId, placement: Placement) -> None:
        del request_id
        self._placed.add("whole" if placement.prefill is None else "split")

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

    def observed(self, observation: Observation) -> None:
        predicted_s = observation.predicted_s
        if predicted_s is not None:
            self._misjudged.observe(abs(observation.took_s - predicted_s))

    def fallback(self, rung: str, reason: str) -> None:
        self._fallback.add(rung, reason)

    def admission(self, decision: str, reason: str) -> None:
        self._admission.add(decision, reason)

    def waited(self, seconds: float) -> None:
        self._waited.observe(seconds)

    def queue(self, depth: int, predicted_wait_s: float) -> None:
        self._line.depth, self._line.predicted_wait_s = depth, predicted_wait_s

    def ended(self, request_id: RequestId, outcome: str) -> None:
        del request_id
        self._ended.add(outcome)


class QueueMetrics(Collector):
    """The line of requests that wait for room, as the router last told of it."""

    def __init__(self) -> None:
        self.depth = 0
        self.predicted_wait_s = 0.0

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "splitserve_queue_depth", "Requests waiting for room", value=self.depth
        )
        yield GaugeMetricFamily(
            "splitserve_queue_predicted_wait_seconds",
            "How long a request that came now would wait for room",
            value=self.predicted_wait_s,
        )


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
        breaker = GaugeMetricFamily(
            "splitserve_worker_breaker",
            "1 for the state that the worker's circuit breaker is in",
            labels=["worker", "state"],
        )
        since_step = GaugeMetricFamily(
            "splitserve_worker_seconds_since_step",
            "Since when the worker has had work and made no step; 0 while all is well",
            labels=["worker"],
        )
        reconciled = CounterMetricFamily(
            "splitserve_reconciled",
            "Requests that only one side knew: ended at the worker, or moved on by the gateway",
            labels=["worker", "side"],
        )
        workers = self._snapshot()
        for worker in workers:
            for breaker_state in BreakerState:
                is_in = float(worker.breaker == breaker_state.value)
                breaker.add_metric([worker.worker, breaker_state.value], is_in)
            reconciled.add_metric([worker.worker, "worker"], worker.aborted_strays)
            reconciled.add_metric([worker.worker, "gateway"], worker.failed_strays)
            connected.add_metric([worker.worker], float(worker.connected))
            if worker.kv is not None:
                for state, count in _by_state(worker.kv):
                    blocks.add_metric([worker.worker, state], count)
            if worker.load is not None:
                running.add_metric([worker.worker], worker.load.running)
                waiting.add_metric([worker.worker], worker.load.waiting)
                since_step.add_metric([worker.worker], worker.load.since_step_s)
        yield from (blocks, connected, running, waiting)
        yield from (breaker, since_step, reconciled)
        yield _links(workers)
        yield from _counted(workers)
        yield _skipped(workers)
        yield from _counted_by_level(workers)


def _by_state(kv: KVCounts) -> list[tuple[str, int]]:
    counts = (kv.free, kv.cached, kv.held, kv.granted, kv.exported, kv.quarantined)
    return list(zip(STATES, counts, strict=True))


def _links(workers: Sequence[WorkerSnapshot]) -> GaugeMetricFamily:
    """Without a sample for a pair that is not linked: /ready warns of it. Who prefills tells the
    way."""
    family = GaugeMetricFamily(
        "splitserve_link",
        "1 while a prefill worker is linked",
        labels=["prefill", "decode", "connector", "way", "faster"],
    )
    ways = {
        (prefill.worker, one.decode): one
        for prefill in workers
        for one in (prefill.load.ways if prefill.load is not None else ())
    }
    for decode in workers:
        for prefill in decode.load.linked if decode.load is not None else ():
            way = ways.get((prefill, decode.worker), LinkWay(decode.worker, "", ""))
            pair = [prefill, decode.worker, decode.connector]
            family.add_metric([*pair, way.way, way.faster], 1)
    return family


def _counted(workers: Sequence[WorkerSnapshot]) -> Iterator[CounterMetricFamily]:
    for name, text, read in _COUNTED:
        family = CounterMetricFamily(f"splitserve_{name}", text, labels=["worker"])
        for worker in workers:
            if worker.load is not None:
                family.add_metric([worker.worker], read(worker.load))
        yield family


def _skipped(workers: Sequence[WorkerSnapshot]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        "splitserve_pull_skipped",
        "Times a prompt's start was computed although a decode worker had it",
        labels=["worker", "reason"],
    )
    for worker in workers:
        if worker.load is not None:
            family.add_metric([worker.worker, "cost"], worker.load.skipped_pulls)
    return family


def _counted_by_level(workers: Sequence[WorkerSnapshot]) -> Iterator[CounterMetricFamily]:
    """Without a sample where no worker has a tier."""
    for name, text, read in _COUNTED_BY_LEVEL:
        family = CounterMetricFamily(f"splitserve_kv_tier_{name}", text, labels=["worker", "level"])
        for worker in workers:
            for tier in worker.load.tier if worker.load is not None else ():
                family.add_metric([worker.worker, tier.level], read(tier))
        yield family
