"""A server whose every answer is known before it is asked for."""

from dataclasses import dataclass
from typing import Final

import msgspec

from splitserve.lab.mock.case import DONE, LAST_CHUNK, STREAM_HEAD, chat, chunked, event, usage_of
from splitserve.lab.mock.script import Script, Send

MODEL: Final = "scripted"

_MODELS: Final = msgspec.json.encode({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: role chunk, first token and the distance of events, with one stall half way.

    Every ``group_every``-th event carries ``group`` tokens, the others one; ``tokens`` in all.
    """

    tokens: int
    role_s: float = 0.005
    first_s: float = 0.2
    gap_s: float = 0.02
    stall_s: float = 0.2
    group_every: int = 5
    group: int = 3


def events_of(timing: Timing) -> list[tuple[float, int]]:
    """When each event with tokens is due after the request, and how many it carries."""
    found: list[tuple[float, int]] = []
    at_s, left = timing.first_s, timing.tokens
    while left > 0:
        grouped = found and len(found) % timing.group_every == 0
        count = min(left, timing.group if grouped else 1)
        found.append((at_s, count))
        stalls = left - count <= timing.tokens // 2 < left
        at_s += timing.stall_s if stalls else timing.gap_s
        left -= count
    return found


def answer_script(timing: Timing) -> Script:
    """A chat's stream in the form that vLLM and Splitserve write: a role chunk, text, the reason on
    the last text, usage."""
    events = events_of(timing)
    last = len(events) - 1
    sends = [
        Send(0.0, STREAM_HEAD),
        Send(timing.role_s, chunked(event(chat({"role": "assistant", "content": ""})))),
        *(
            Send(at_s, chunked(_text(count, "length" if number == last else None)))
            for number, (at_s, count) in enumerate(events)
        ),
        Send(events[-1][0], _end(timing.tokens)),
    ]
    return Script(tuple(sends))


def script_for(timing: Timing) -> "ScriptOfBody":
    """What a mock server answers: models to whoever asks without a body, else the stream."""
    return ScriptOfBody(answer_script(timing))


class ScriptOfBody:
    """Called by ``MockServer``."""

    def __init__(self, answer: Script) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._models = Script((Send(0.0, head % len(_MODELS) + _MODELS),))
        self._answer = answer

    def __call__(self, request_id: str, body: bytes) -> Script:
        del request_id
        return self._answer if body else self._models


def _text(count: int, finish: str | None) -> bytes:
    return event(chat({"content": " word" * count}, ids=count, finish=finish))


def _end(tokens: int) -> bytes:
    usage = event({"id": "chatcmpl-1", "choices": [], "usage": usage_of(tokens)})
    return chunked(usage + DONE) + LAST_CHUNK
