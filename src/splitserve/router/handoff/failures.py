"""The failure ladder: which rung a failure leads to, in which state. Pure tables.

Another handoff (other prefill or decode worker), then the whole request on one worker, then one
clear error. After the first token has left only the last two are open: the worker computes prompt
and emitted tokens anew and goes on after them, exactly, since draws are keyed by seed and position.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from splitserve.router.handoff.states import Part, State
from splitserve.router.workers.reconcile import FORGOTTEN


class Rung(Enum):
    """Where the ladder is entered. CALLER and ROOM are not failures of ours."""

    CALLER = "caller"
    ROOM = "room"
    HANDOFF = "handoff"
    WHOLE = "whole"


LOST: Final = "lost"
DRAINING: Final = "draining"
ROLE_CHANGED: Final = "role_changed"

MEANINGS: Final[Mapping[str, str]] = {
    LOST: "was lost",
    "no_blocks": "had no room",
    "too_long": "cannot hold the request",
    "invalid": "refused the request",
    "not_linked": "had no link for the KV transfer",
    "stale_link": "had lost its link for the KV transfer",
    "cancelled": "had given the request up",
    DRAINING: "is leaving",
    ROLE_CHANGED: "has another role now",
    FORGOTTEN: "does not know the request any more",
    "duplicate": "knew the request already",
    "transfer_failed": "could not move the KV",
    "writer_lost": "lost the worker that wrote its KV",
    "decode_lost": "lost the worker that it wrote KV to",
    "lease_expired": "got no KV in time",
    "engine": "failed",
    "aborted": "aborted the request unasked",
    "no_replay": "cannot go on in the middle of such an answer",
}
"""Codes of Failed and Refuse and our own, as the end of a sentence about the worker."""

ENTRY: Final[Mapping[State, Rung]] = {
    State.GRANTING: Rung.HANDOFF,
    State.PREFILLING: Rung.HANDOFF,
    State.TRANSFERRING: Rung.WHOLE,
    State.DECODING: Rung.WHOLE,
    State.LOCAL: Rung.WHOLE,
    State.RECOMPUTING: Rung.WHOLE,
}
"""For every code that is not in EXCEPTIONS; unknown codes too, a newer worker may know more."""

EXCEPTIONS: Final[Mapping[tuple[State, str], Rung]] = {
    (State.GRANTING, "no_blocks"): Rung.ROOM,
    # Nothing was begun there: wherever there is room now, or will be, is as good.
    (State.GRANTING, DRAINING): Rung.ROOM,
    (State.LOCAL, DRAINING): Rung.ROOM,
    **{(state, code): Rung.CALLER for state in ENTRY for code in ("too_long", "invalid")},
}
"""What the caller did wrong is wrong at every worker, also when it shows late: a grammar that
breaks off after the first token."""

BY_INTENT: Final = frozenset({DRAINING, ROLE_CHANGED})
"""Not failures but moves, as many as there are: they do not use up a request's attempts."""

_WRITERS_FAULT: Final = frozenset({"writer_lost", "lease_expired", "transfer_failed", "not_linked"})


def entry_rung(state: State, code: str) -> Rung:
    """Raises KeyError for states in which no worker is at work."""
    return EXCEPTIONS.get((state, code), ENTRY[state])


def blamed(part: Part, code: str) -> Part:
    """Whose fault it is: the part to avoid in the next attempt."""
    if part is Part.DECODE and code in _WRITERS_FAULT:
        return Part.PREFILL
    if part is Part.PREFILL and code == "decode_lost":
        return Part.DECODE
    return part


def reason(part: Part, split: bool, code: str) -> str:
    """The metric's word for a failure, from a fixed set whatever a worker sends."""
    who = part.value if split else "worker"
    return f"{who}_{code if code in MEANINGS else 'unknown'}"


def sentence(part: Part, split: bool, code: str) -> str:
    """``the prefill worker was lost``: for the client."""
    who = f"the {part.value} worker" if split else "the worker"
    return f"{who} {MEANINGS.get(code, 'failed')}"
