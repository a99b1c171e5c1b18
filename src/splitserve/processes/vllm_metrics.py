"""What a gateway tells Prometheus of handoffs between vLLM instances."""

from prometheus_client import CollectorRegistry

from splitserve.metrics import Counter


class VllmMetrics:
    """``note`` takes Exchange's words."""

    def __init__(self) -> None:
        self._notes = Counter(
            "splitserve_vllm_handoff", "What happened in handoffs between vLLM instances", ["what"]
        )

    def register(self, registry: CollectorRegistry) -> None:
        registry.register(self._notes)

    def note(self, what: str) -> None:
        self._notes.add(what)
