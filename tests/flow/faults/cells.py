"""The matrix: every state of a request before its end, times everything that can break.

A cell that cannot happen stands in ``IMPOSSIBLE`` with the reason; all others are run.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from splitserve.router.handoff.states import FINAL, State


class Fault(Enum):
    PREFILL_KILLED = "prefill_killed"
    DECODE_KILLED = "decode_killed"
    GATEWAY_KILLED = "gateway_killed"
    CLIENT_GONE = "client_gone"
    TRANSFER_STALLS = "transfer_stalls"
    TRANSFER_FAILS = "transfer_fails"
    TRANSFER_CORRUPT = "transfer_corrupt"
    DUPLICATE_KV_READY = "duplicate_kv_ready"
    PREFILL_FROZEN = "prefill_frozen"
    DECODE_FROZEN = "decode_frozen"
    HALF_OPEN_TO_PREFILL = "half_open_gateway_prefill"
    HALF_OPEN_TO_DECODE = "half_open_gateway_decode"
    HALF_OPEN_LINK = "half_open_prefill_decode"


Cell = tuple[State, Fault]

STATES: Final = tuple(state for state in State if state not in FINAL)
TRANSFER: Final = (Fault.TRANSFER_STALLS, Fault.TRANSFER_FAILS, Fault.TRANSFER_CORRUPT)
OF_PREFILL: Final = (
    Fault.PREFILL_KILLED,
    Fault.PREFILL_FROZEN,
    Fault.HALF_OPEN_TO_PREFILL,
    Fault.HALF_OPEN_LINK,
    Fault.DUPLICATE_KV_READY,
    *TRANSFER,
)

OVER: Final = "every write of the request has ended: PrefillDone is said after the last"
VOID: Final = "the attempt that wrote is over; what is computed here is written by nobody else"
ALONE: Final = "one worker does all: no prefill worker, no link and no transfer take part"

IMPOSSIBLE: Final[dict[Cell, str]] = {
    **{(State.DECODING, fault): OVER for fault in TRANSFER},
    **{(State.RECOMPUTING, fault): VOID for fault in TRANSFER},
    **{(State.LOCAL, fault): ALONE for fault in OF_PREFILL},
}


def cells() -> Iterator[Cell]:
    """Those that can happen."""
    for state in STATES:
        for fault in Fault:
            if (state, fault) not in IMPOSSIBLE:
                yield state, fault
