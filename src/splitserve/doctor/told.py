"""What a gateway's /metrics page tells of its workers, links and handoffs. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from splitserve.doctor.findings import Handoffs, RunningLink, RunningWorker


@dataclass(frozen=True, slots=True)
class Sample:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Told:
    workers: tuple[RunningWorker, ...]
    links: tuple[RunningLink, ...]
    handoffs: Handoffs


Samples = Mapping[str, list[Sample]]
"""By the samples' names."""

_OF_A_LINK: Final = ("prefill", "decode", "connector", "way", "faster")


def told_by(page: str) -> Told:
    """Empty for a page that is none, or of another server."""
    samples = _samples(page)
    return Told(_workers(samples), _links(samples), _handoffs(samples))


def _samples(page: str) -> Samples:
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[sample.name].append(Sample(dict(sample.labels), float(sample.value)))
    except ValueError:
        return {}
    return found


def _workers(samples: Samples) -> tuple[RunningWorker, ...]:
    names = [one.labels.get("worker", "") for one in samples.get("splitserve_worker_connected", ())]
    return tuple(_worker(name, samples) for name in names)


def _worker(name: str, samples: Samples) -> RunningWorker:
    def own(metric: str) -> list[Sample]:
        return [one for one in samples.get(metric, ()) if one.labels.get("worker") == name]

    def value(metric: str) -> float:
        return sum(one.value for one in own(metric))

    breaker = [one.labels.get("state", "") for one in own("splitserve_worker_breaker") if one.value]
    return RunningWorker(
        name=name,
        connected=value("splitserve_worker_connected") > 0,
        breaker=breaker[0] if breaker else "closed",
        running=value("splitserve_requests_running"),
        waiting=value("splitserve_requests_waiting"),
        since_step_s=value("splitserve_worker_seconds_since_step"),
        kv_blocks={one.labels.get("state", ""): one.value for one in own("splitserve_kv_blocks")},
    )


def _links(samples: Samples) -> tuple[RunningLink, ...]:
    return tuple(
        RunningLink(*(one.labels.get(name, "") for name in _OF_A_LINK))
        for one in samples.get("splitserve_link", ())
    )


def _handoffs(samples: Samples) -> Handoffs:
    def total(metric: str) -> float:
        return sum(one.value for one in samples.get(metric, ()))

    count = total("splitserve_handoff_exposed_seconds_count")
    exposed_s = total("splitserve_handoff_exposed_seconds_sum")
    fallbacks: defaultdict[str, float] = defaultdict(float)
    for one in samples.get("splitserve_fallback_total", ()):
        fallbacks[f"{one.labels.get('rung', '')}: {one.labels.get('reason', '')}"] += one.value
    return Handoffs(
        count=count,
        kv_bytes=total("splitserve_handoff_bytes_total"),
        exposed_ms=exposed_s / count * 1e3 if count else 0.0,
        fallbacks=dict(fallbacks),
    )
