"""What a text tier counts."""

from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from splitserve.metrics import Counter


def _calls() -> Counter:
    return Counter(
        "splitserve_text_calls",
        "Calls of the text services, by service and outcome",
        ["service", "outcome"],
    )


def _mismatches() -> Counter:
    return Counter(
        "splitserve_text_mismatches",
        "Derender calls for tokens that were rendered under other settings",
    )


@dataclass(frozen=True, slots=True)
class ScaleOutMetrics:
    """``calls`` counts by service (its path without ``/v1/``) and Outcome."""

    calls: Counter = field(default_factory=_calls)
    mismatches: Counter = field(default_factory=_mismatches)

    def register(self, registry: CollectorRegistry) -> None:
        """Makes them part of what ``registry`` exposes. Once a registry."""
        for collector in (self.calls, self.mismatches):
            registry.register(collector)
