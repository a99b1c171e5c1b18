"""Which request is due when. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from splitserve.errors import ConfigError
from splitserve.lab.load.request import LoadRequest


@dataclass(frozen=True, slots=True)
class Due:
    """One request, or the turns of one session: the first is due at ``at_s`` of the run, each
    other one its ``think_s`` after the answer before."""

    at_s: float
    turns: tuple[LoadRequest, ...]
    warmup: bool = False


def conversations(requests: Sequence[LoadRequest]) -> list[tuple[LoadRequest, ...]]:
    """Neighbours of one session together, in order; a request without a session alone."""
    return [
        turns
        for session, group in groupby(requests, key=lambda request: request.session)
        for turns in _split(session, tuple(group))
    ]


def _split(
    session: str | None, group: tuple[LoadRequest, ...]
) -> Iterator[tuple[LoadRequest, ...]]:
    if session is not None:
        yield group
    else:
        yield from ((request,) for request in group)


def at_offsets(
    requests: Sequence[LoadRequest], offsets_s: Sequence[float], *, warmup: bool = False
) -> list[Due]:
    """The first conversations of ``requests``, one per offset.

    Raises ConfigError when there are fewer: a request sent twice would be answered from a cache.
    """
    available = conversations(requests)
    if len(available) < len(offsets_s):
        raise ConfigError(f"{len(offsets_s)} arrivals need more than {len(available)} requests")
    return [Due(at_s, turns, warmup) for at_s, turns in zip(offsets_s, available, strict=False)]


def after_warmup(warmup: Sequence[Due], measured: Sequence[Due], warmup_s: float) -> list[Due]:
    """Warm-up from 0 to ``warmup_s``, then the measured load without a pause."""
    if any(due.at_s >= warmup_s for due in warmup):
        raise ConfigError("a warm-up request is due after the warm-up's end")
    return [
        *(replace(due, warmup=True) for due in warmup),
        *(replace(due, at_s=due.at_s + warmup_s) for due in measured),
    ]
