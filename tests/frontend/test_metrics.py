"""Our histogram and counter say what Prometheus expects to read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference

from splitserve.metrics import LATENCY_BUCKETS_S, Counter, Histogram


@given(st.lists(st.one_of(st.floats(0, 100), st.sampled_from(LATENCY_BUCKETS_S)), max_size=30))
@settings(max_examples=50, deadline=None)
def test_a_histogram_equals_prometheus_own(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("h", "x", LATENCY_BUCKETS_S)
    ours.register(histogram)
    reference = Reference("h", "x", buckets=LATENCY_BUCKETS_S, registry=theirs)
    for value in values:
        histogram.observe(value)
        reference.observe(value)
    for bound in (*map(str, LATENCY_BUCKETS_S), "+Inf"):
        labels = {"le": bound}
        assert ours.get_sample_value("h_bucket", labels) == theirs.get_sample_value(
            "h_bucket", labels
        )
    assert ours.get_sample_value("h_count") == len(values) == histogram.count
    assert ours.get_sample_value("h_sum") == pytest.approx(sum(values))


def test_a_counter_keeps_label_values_apart() -> None:
    registry = CollectorRegistry()
    counter = Counter("c", "x", ["outcome"])
    registry.register(counter)
    counter.add("ok")
    counter.add("ok", amount=2)
    counter.add("bad")
    assert registry.get_sample_value("c_total", {"outcome": "ok"}) == 3 == counter.value("ok")
    assert registry.get_sample_value("c_total", {"outcome": "bad"}) == 1
    assert counter.value("never") == 0


def test_a_counter_refuses_a_wrong_number_of_labels() -> None:
    with pytest.raises(ValueError, match="labels"):
        Counter("c", "x", ["outcome"]).add()
