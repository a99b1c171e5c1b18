"""Cases on what goes wrong: every failure must be seen, and be called by its name."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from splitserve.lab.load.record import Counting, Outcome
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.mock.case import (
    DONE,
    Case,
    Piece,
    completion,
    event,
    script_of,
    told,
    total,
)
from splitserve.lab.mock.script import Ending, Script, Send

LIMITS: Final = Limits(connect_s=2.0, first_s=1.0, gap_s=0.7, total_s=1.5)
"""What the conformance client waits: short, since some cases are about waiting in vain."""

_TWO: Final[tuple[Piece, ...]] = (
    (event(completion("a", 1)), 1),
    (event(completion("b", 1)), 1),
)
_ERROR: Final = event({"error": {"message": "engine died", "code": 500}})


def _after_two(name: str, outcome: Outcome, then: Sequence[bytes] = (), *, error: str = "") -> Case:
    pieces = [*_TWO, *((data, 0) for data in then)]
    datas = [data for data, _ in pieces]
    case = told(name, pieces, script_of(datas), outcome)
    return replace(case, text="ab", error=error)


def _ended(case: Case, ending: Ending) -> Case:
    """The same without the chunk that would make the body whole."""
    return replace(case, script=Script(case.script.sends[:-1], ending))


def _in_band() -> list[Case]:
    named = b'event: error\ndata: {"message": "engine died"}\n\n'
    plain = event({"object": "error", "message": "engine died", "code": 500})
    text = event({"error": "engine died"})
    forms = {"": _ERROR, " named": named, " flat": plain, " as text": text}
    return [
        _after_two(f"in-band error{form}", Outcome.INBAND_ERROR, [data, DONE], error="engine died")
        for form, data in forms.items()
    ]


def _cuts() -> list[Case]:
    cut = _after_two("end without finish_reason", Outcome.TRUNCATED, [])
    closed = _ended(replace(cut, name="closed before the finish"), Ending.CLOSE)
    reset = _ended(replace(cut, name="reset before the finish"), Ending.RESET)
    done = _after_two("[DONE] without finish_reason", Outcome.TRUNCATED, [DONE])
    half = _after_two("closed inside an event", Outcome.TRUNCATED, [b'data: {"choices": [{"te'])
    half = _ended(half, Ending.CLOSE)
    junk = _after_two("an event that is no JSON", Outcome.BAD_STREAM, [b"data: {]\n\n", DONE])
    empty = Case("no token at all", script_of([DONE]), Outcome.TRUNCATED, counting=Counting.EVENTS)
    return [cut, closed, reset, done, half, junk, empty]


def _waits() -> list[Case]:
    """Keep-alive comments do not make a stall an answer."""
    nothing = script_of([], last=b"", ending=Ending.HOLD)
    beats = tuple(Send(0.1 * beat, b": keep-alive\n\n") for beat in range(1, 12))
    framed = tuple(Send(beat.at_s, b"%x\r\n%b\r\n" % (len(beat.data), beat.data)) for beat in beats)
    alive = Script((*nothing.sends, *framed), Ending.HOLD)
    stall = _ended(_after_two("stall", Outcome.TIMEOUT_GAP), Ending.HOLD)
    slow = [(event(completion("a", 1)), 1)] * 2
    slow_script = script_of([data for data, _ in slow], pace_s=0.5, last=b"", ending=Ending.HOLD)
    endless = replace(told("too long in all", slow, slow_script, Outcome.TIMEOUT_TOTAL), text="aa")
    silent = Case("silence", Script((), Ending.HOLD), Outcome.TIMEOUT_FIRST, status=None)
    waiting = Case("keep-alive only", alive, Outcome.TIMEOUT_FIRST)
    return [
        replace(silent, counting=Counting.EVENTS),
        replace(waiting, counting=Counting.EVENTS),
        stall,
        endless,
        _open_after_finish(),
    ]


def _open_after_finish() -> Case:
    """A finished answer whose stream is not closed is finished."""
    pieces = [(event(completion("a", 1, "stop")), 1), (total(1), 0)]
    script = script_of([data for data, _ in pieces], last=b"", ending=Ending.HOLD)
    case = told("finished but left open", pieces, script, Outcome.OK)
    return replace(case, text="a", finish_reason="stop", output_tokens=1)


def _refusals() -> list[Case]:
    return [
        _refusal(429, b"Retry-After: 2\r\n", "busy (Retry-After: 2)"),
        _refusal(503, b"Retry-After: 7\r\n", "busy (Retry-After: 7)"),
        _refusal(400, b"", "busy"),
        replace(_refusal(200, b"", "busy"), outcome=Outcome.INBAND_ERROR, name="error as a 200"),
        _not_http(),
        Case(
            "closed without a response",
            Script((), Ending.CLOSE),
            Outcome.CONNECT_ERROR,
            counting=Counting.EVENTS,
            status=None,
        ),
    ]


def _refusal(status: int, header: bytes, error: str) -> Case:
    body = b'{"error": {"message": "busy", "type": "overloaded"}}'
    head = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
    script = Script((Send(0.0, head % (status, header, len(body)) + body),))
    return Case(
        f"HTTP {status}",
        script,
        Outcome.HTTP_ERROR,
        counting=Counting.EVENTS,
        status=status,
        error=error,
    )


def _not_http() -> Case:
    script = Script((Send(0.0, b"SSH-2.0-x\r\n"),), Ending.CLOSE)
    return Case("no HTTP", script, Outcome.CONNECT_ERROR, counting=Counting.EVENTS, status=None)


def fault_cases() -> list[Case]:
    """One case per failure."""
    return [*_in_band(), *_cuts(), *_waits(), *_refusals()]
