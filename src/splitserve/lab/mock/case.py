"""One conformance case: a scripted response, and what the client must make of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from splitserve.lab.load.record import Counting, Outcome
from splitserve.lab.mock.script import Ending, Script, Send

STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK: Final = b"0\r\n\r\n"
DONE: Final = b"data: [DONE]\n\n"
PACE_S: Final = 0.003
"""Between the sends of a case."""

Piece = tuple[bytes, int]
"""What one send carries, and the tokens that it completes."""


@dataclass(frozen=True, slots=True)
class Case:
    """``tokens`` are (index of the send that completes the event, new tokens); ``answer`` the index
    of the first that is no reasoning. ``forced_tokens`` is the length asked for, None for free."""

    name: str
    script: Script
    outcome: Outcome
    tokens: tuple[tuple[int, int], ...] = ()
    text: str = ""
    counting: Counting = Counting.IDS
    finish_reason: str | None = None
    output_tokens: int | None = None
    answer: int | None = None
    status: int | None = 200
    forced_tokens: int | None = None
    error: str = ""


def chunked(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: object) -> bytes:
    """One event in the form everybody writes."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def completion(
    text: str, ids: int | None = None, finish: str | None = None, usage: int | None = None
) -> dict[str, object]:
    """A chunk of a completion with ``ids`` token ids and ``usage`` tokens so far."""
    choice: dict[str, object] = {"index": 0, "text": text, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = list(range(ids))
    chunk: dict[str, object] = {"id": "cmpl-1", "object": "text_completion", "choices": [choice]}
    return chunk if usage is None else chunk | {"usage": usage_of(usage)}


def chat(
    delta: dict[str, object], ids: int | None = None, finish: str | None = None
) -> dict[str, object]:
    """A chunk of a chat completion."""
    choice: dict[str, object] = {"index": 0, "delta": delta, "finish_reason": finish}
    if ids is not None:
        choice["token_ids"] = list(range(ids))
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}


def usage_of(tokens: int) -> dict[str, int]:
    """OpenAI's usage object of an answer of ``tokens`` tokens."""
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}


def total(tokens: int) -> bytes:
    """The event with the usage of the whole answer."""
    return event({"id": "cmpl-1", "choices": [], "usage": usage_of(tokens)})


def script_of(
    pieces: Sequence[bytes],
    *,
    head: bytes = STREAM_HEAD,
    frame: Callable[[bytes], bytes] = chunked,
    last: bytes = LAST_CHUNK,
    ending: Ending = Ending.KEEP,
    pace_s: float = PACE_S,
) -> Script:
    """The head is send 0, piece ``i`` is send ``i`` + 1; ``last`` follows if not empty."""
    datas = [head, *(frame(piece) for piece in pieces), *([last] if last else [])]
    return Script(tuple(Send(i * pace_s, data) for i, data in enumerate(datas)), ending)


def told(name: str, pieces: Sequence[Piece], script: Script, outcome: Outcome) -> Case:
    """A case whose piece ``i`` is send ``i`` + 1; the first token is no reasoning."""
    tokens = tuple((at, count) for at, (_, count) in enumerate(pieces, start=1) if count)
    return Case(name, script, outcome, tokens, answer=tokens[0][0] if tokens else None)
