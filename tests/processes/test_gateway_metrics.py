from prometheus_client import CollectorRegistry

from splitserve.processes.gateway_metrics import RouterMetrics


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
