from prometheus_client import CollectorRegistry

from splitserve.processes.gateway_metrics import RouterMetrics, WorkerMetrics
from splitserve.protocol.telemetry import KVCounts, LinkWay, Load, TierCounts
from splitserve.router.workers.record import WorkerSnapshot

KV = KVCounts(free=1, cached=0, held=0, granted=0, exported=0, quarantined=0)


def test_admission_and_the_line_are_shown() -> None:
    metrics, registry = RouterMetrics(), CollectorRegistry()
    metrics.register(registry)
    metrics.admission("admitted", "at_once")
    metrics.admission("refused", "deadline")
    metrics.admission("refused", "deadline")
    metrics.waited(0.25)
    metrics.queue(3, 1.5)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    counted = "splitserve_admission_total"
    assert value(counted, decision="admitted", reason="at_once") == 1
    assert value(counted, decision="refused", reason="deadline") == 2
    assert value("splitserve_queue_wait_seconds_count") == 1
    assert value("splitserve_queue_wait_seconds_sum") == 0.25
    assert value("splitserve_queue_depth") == 3
    assert value("splitserve_queue_predicted_wait_seconds") == 1.5
    metrics.queue(0, 0.0)
    assert value("splitserve_queue_depth") == 0


def snapshot(name: str, load: Load | None) -> WorkerSnapshot:
    return WorkerSnapshot(
        worker=name,
        role="prefill",
        address="unix:/x",
        connected=load is not None,
        unusable="",
        in_flight=0,
        kv=KV,
        load=load,
        breaker="closed",
        aborted_strays=0,
        failed_strays=0,
        connector="shm",
    )


def test_links_are_shown_as_decode_workers_report_them() -> None:
    linked = Load(KV, 0, 0, 0, 0, 0, 0, 0, linked=("p0", "p1"))
    told = Load(KV, 0, 0, 0, 0, 0, 0, 0, ways=(LinkWay("d0", "tcp", "shm"), LinkWay("d9", "a", "")))
    workers = [snapshot("d0", linked), snapshot("gone", None), snapshot("p0", told)]
    registry = CollectorRegistry()
    registry.register(WorkerMetrics(lambda: workers))
    for prefill, way, faster in (("p0", "tcp", "shm"), ("p1", "", "")):
        labels = {"prefill": prefill, "decode": "d0", "connector": "shm"}
        labels |= {"way": way, "faster": faster}
        assert registry.get_sample_value("splitserve_link", labels) == 1
    (links,) = (family for family in registry.collect() if family.name == "splitserve_link")
    assert len(links.samples) == 2


def test_what_workers_count_is_shown_for_each_and_for_each_level_of_its_tier() -> None:
    tier = (TierCounts("memory", 1, 2, 3, 4, 5), TierCounts("disk", 6, 7, 8, 9, 10))
    counted = Load(
        kv=KV,
        running=0,
        waiting=0,
        waiting_tokens=0,
        steps=0,
        preemptions=17,
        prefix_hit_tokens=0,
        prefix_query_tokens=0,
        computed_tokens=11,
        pulled_tokens=12,
        pulled_bytes=13,
        tier=tier,
        skipped_pulls=14,
    )
    plain = Load(KV, 0, 0, 0, 0, 0, 0, 0)
    workers = [snapshot("p0", counted), snapshot("d0", plain), snapshot("gone", None)]
    registry = CollectorRegistry()
    registry.register(WorkerMetrics(lambda: workers))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"splitserve_{name}_total", labels)

    assert value("preemptions", worker="p0") == 17
    assert value("prompt_tokens_computed", worker="p0") == 11
    assert value("pulled_tokens", worker="p0") == 12
    assert value("pulled_bytes", worker="p0") == 13
    assert value("pull_skipped", worker="p0", reason="cost") == 14
    assert value("pulled_bytes", worker="d0") == 0
    assert value("pulled_bytes", worker="gone") is None
    for level, first in (("memory", 1), ("disk", 6)):
        kinds = ("hits", "misses", "bytes", "evictions", "corrupt")
        shown = [value(f"kv_tier_{kind}", worker="p0", level=level) for kind in kinds]
        assert shown == [first, first + 1, first + 2, first + 3, first + 4]
    assert value("kv_tier_hits", worker="d0", level="memory") is None
