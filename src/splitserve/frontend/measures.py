"""What a frontend counts."""

from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import CollectorRegistry

from splitserve.metrics import LATENCY_BUCKETS_S, Counter, Histogram

Outcome = Literal["ok", "refused", "overload", "peer_failed", "error", "cancelled"]


def _ttft() -> Histogram:
    return Histogram(
        "splitserve_ttft_seconds",
        "From a request's arrival to its first token, per choice",
        LATENCY_BUCKETS_S,
    )


def _itl() -> Histogram:
    return Histogram(
        "splitserve_itl_seconds",
        "Gap between two chunks of tokens of one choice",
        LATENCY_BUCKETS_S,
    )


def _requests() -> Counter:
    return Counter("splitserve_requests", "HTTP requests for an answer, by outcome", ["outcome"])


@dataclass(frozen=True, slots=True)
class FrontendMetrics:
    """``requests`` counts by Outcome. Times are taken where tokens reach the frontend."""

    ttft: Histogram = field(default_factory=_ttft)
    itl: Histogram = field(default_factory=_itl)
    requests: Counter = field(default_factory=_requests)

    def register(self, registry: CollectorRegistry) -> None:
        """Makes them part of what ``registry`` exposes. Once a registry."""
        for collector in (self.ttft, self.itl, self.requests):
            registry.register(collector)
