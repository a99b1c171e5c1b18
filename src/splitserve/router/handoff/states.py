"""The states of one request between arrival and end, and what is remembered in them.

    WAITING ----placed----> GRANTING --granted--> PREFILLING --first token--> TRANSFERRING
       |  ^                    |                                                   |
       |  '----- no room ------'                          KV handed over or second token
       |                                                                           v
       '------placed------> LOCAL ----------------- first token ---------------> DECODING
                                                                                 |     ^
                            a worker failed anywhere: RECOMPUTING --next token---------'

and from anywhere to DONE (the whole answer is here), FAILED or CANCELLED (the client went).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from splitserve.ids import WorkerId
from splitserve.router.policy.base import Placement


class State(Enum):
    """WAITING: no worker knows of it. GRANTING: decode was asked for room. PREFILLING: prefill
    computes. TRANSFERRING: the first token is here, KV may be on its way. DECODING: tokens come
    from one worker that holds everything. LOCAL: one worker does it all, no token yet.
    RECOMPUTING: as LOCAL, after a failure; tokens may have left before."""

    WAITING = "waiting"
    GRANTING = "granting"
    PREFILLING = "prefilling"
    TRANSFERRING = "transferring"
    DECODING = "decoding"
    LOCAL = "local"
    RECOMPUTING = "recomputing"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL: Final = frozenset({State.DONE, State.FAILED, State.CANCELLED})


class Part(Enum):
    """What a worker does of a request. LOCAL work counts as DECODE's."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Progress:
    """One request's place in the table.

    ``since`` is when the state was entered. ``attempt`` numbers the placements from 0 (-1 before
    the first). ``failures`` counts those that a worker's failure ended. ``working`` are the workers
    that were told of this attempt and may still hold something of it. ``avoid`` are workers not to
    be used again for this request. ``decode_spoke``: a token of this attempt came from decode.
    ``answering``: a token has reached the client.
    """

    max_attempts: int
    since: float
    state: State = State.WAITING
    attempt: int = -1
    failures: int = 0
    placement: Placement | None = None
    working: frozenset[WorkerId] = field(default=frozenset())
    avoid: frozenset[WorkerId] = field(default=frozenset())
    decode_spoke: bool = False
    answering: bool = False

    @property
    def final(self) -> bool:
        return self.state in FINAL

    def part_of(self, worker: WorkerId) -> Part | None:
        """What ``worker`` does of the current attempt; None when it holds nothing of it."""
        if worker not in self.working or self.placement is None:
            return None
        return Part.PREFILL if worker == self.placement.prefill else Part.DECODE
