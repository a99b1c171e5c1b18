"""What a run needs of an arm."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from splitserve.lab.plan.config_diff import Config


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go. ``url`` is without ``/v1``; ``headers`` hold the key and are never
    recorded; ``model`` is what requests call the model."""

    url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Described:
    """The effective configuration of a running arm, flat as in ``plan.config_diff``.

    ``live`` is the part that the servers said themselves, ``config`` that and what the plan knows.
    ``start`` tells two starts of the arm apart.
    """

    config: Config
    live: Config
    start: str


class Arm(Protocol):
    """One deployment. ``start`` before all else; ``stop`` leaves nothing behind."""

    @property
    def label(self) -> str:
        """Its name in runs and tables."""

    @property
    def endpoint(self) -> Endpoint:
        """Valid between ``start`` and ``stop``."""

    async def start(self) -> None:
        """Returns when it would answer a request. Raises StartFailed or UnavailableError."""

    async def describe(self) -> Described:
        """Raises UnavailableError when it cannot be asked, ConfigError when it serves another
        model than the plan says."""

    async def metrics(self) -> dict[str, float]:
        """Its own counters now, by ``name{label="value"}``; empty where it shows none."""

    async def alive(self) -> str | None:
        """None while it serves and nothing in it has ended since ``start``, else what is wrong."""

    async def reset(self) -> None:
        """Forgets prompts of earlier runs, where the plan wants the server to. Raises
        UnavailableError when that cannot be done."""

    async def stop(self) -> None:
        """Ends what ``start`` started. Safe to call twice."""
