"""The table's second key: what happened, and at which part of the request."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from splitserve.router.handoff.events import (
    Answered,
    Broken,
    ClientGone,
    Deadline,
    Ended,
    Event,
    Granted,
    PartFailed,
    Placed,
    Spoke,
)
from splitserve.router.handoff.states import Part, Progress


class Kind(Enum):
    """Events, told apart by the part of the worker they come from."""

    PLACED = auto()
    GRANTED = auto()
    PREFILL_SPOKE = auto()
    DECODE_SPOKE = auto()
    PREFILL_ENDED = auto()
    DECODE_ENDED = auto()
    PREFILL_FAILED = auto()
    DECODE_FAILED = auto()
    ANSWERED = auto()
    BROKEN = auto()
    CLIENT_GONE = auto()
    DEADLINE = auto()


_SIMPLE: Final[Mapping[type, Kind]] = {
    Placed: Kind.PLACED,
    Answered: Kind.ANSWERED,
    Broken: Kind.BROKEN,
    ClientGone: Kind.CLIENT_GONE,
    Deadline: Kind.DEADLINE,
}

_OF_PART: Final[Mapping[tuple[type, Part], Kind]] = {
    (Granted, Part.DECODE): Kind.GRANTED,
    (Spoke, Part.PREFILL): Kind.PREFILL_SPOKE,
    (Spoke, Part.DECODE): Kind.DECODE_SPOKE,
    (Ended, Part.PREFILL): Kind.PREFILL_ENDED,
    (Ended, Part.DECODE): Kind.DECODE_ENDED,
    (PartFailed, Part.PREFILL): Kind.PREFILL_FAILED,
    (PartFailed, Part.DECODE): Kind.DECODE_FAILED,
}


def kind_of(progress: Progress, event: Event) -> Kind | None:
    """None for news of a worker that holds nothing of this attempt."""
    if isinstance(event, Granted | Spoke | Ended | PartFailed):
        part = progress.part_of(event.worker)
        return None if part is None else _OF_PART.get((type(event), part))
    return _SIMPLE[type(event)]
