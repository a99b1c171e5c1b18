"""A relay for bytes that notes when they passed."""

from dataclasses import dataclass, field
from typing import Self

from splitserve.clock import Clock, monotonic
from splitserve.lab.arms.relay import Heed, Relay

Passed = list[tuple[float, bytes]]
"""When, in seconds of the clock, and what."""


@dataclass(frozen=True, slots=True)
class Tapped:
    """What passed on one connection. ``up`` goes to the server."""

    up: Passed = field(default_factory=list)
    down: Passed = field(default_factory=list)


class Tap:
    """Stands for the server at ``host`` and ``port``. Use it as ``async with``; ``connections`` are
    those so far, in order."""

    def __init__(self, host: str, port: int, clock: Clock = monotonic) -> None:
        self.connections: list[Tapped] = []
        self._clock = clock
        self._relay = Relay(host, port, self._hearing)

    async def __aenter__(self) -> Self:
        await self._relay.__aenter__()
        return self

    async def __aexit__(self, *stopped: object) -> None:
        await self._relay.__aexit__(*stopped)

    @property
    def url(self) -> str:
        """Without a path."""
        return self._relay.url

    def _hearing(self) -> tuple[Heed, Heed]:
        tapped = Tapped()
        self.connections.append(tapped)
        return self._noting(tapped.up), self._noting(tapped.down)

    def _noting(self, passed: Passed) -> Heed:
        return lambda data: passed.append((self._clock(), data))
