"""Settings of the router. Times in seconds."""

from dataclasses import dataclass

from splitserve.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Limits of one gateway's router.

    ``liveness_s``: a worker that says nothing for so long is dead. ``lease_s``: see Reserve.
    ``max_attempts``: workers' failures a request survives, plus one. ``request_timeout_s``: from
    arrival to the last token. ``ttft_deadline_s``: from arrival to the first token; who could not
    keep it is refused instead of waiting for room. ``max_queued``: how many may wait for it.
    ``pair_retry_s``: how often a missing link is asked for. ``backoff_s``, ``max_backoff_s``: first
    and longest pause between two attempts to connect. ``tick_s``: how often time is looked at.
    Raises ConfigError when a value makes no sense.
    """

    policy: str = "least_loaded"
    liveness_s: float = 2.0
    lease_s: float = 5.0
    max_attempts: int = 3
    request_timeout_s: float = 600.0
    ttft_deadline_s: float = 30.0
    max_queued: int = 256
    pair_retry_s: float = 1.0
    backoff_s: float = 0.05
    max_backoff_s: float = 2.0
    tick_s: float = 0.1

    def __post_init__(self) -> None:
        for name in (
            "liveness_s",
            "lease_s",
            "request_timeout_s",
            "ttft_deadline_s",
            "pair_retry_s",
            "backoff_s",
            "max_backoff_s",
            "tick_s",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be more than 0 seconds")
        if self.max_attempts < 1:
            raise ConfigError("max_attempts must be at least 1")
        if self.max_queued < 0:
            raise ConfigError("max_queued must not be negative")
        if self.tick_s * 2 > self.liveness_s:
            raise ConfigError("tick_s must be at most half of liveness_s")
