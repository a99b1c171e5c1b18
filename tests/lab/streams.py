"""A stream's bytes with their times, read as the load client reads them."""

import json
from collections.abc import Sequence

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.load.wire.answer import Answer, outcome_of
from splitserve.lab.load.wire.sse import SseParser

Read = tuple[float, bytes]
DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def text(said: str, tokens: int | None = None, finish: str | None = None) -> bytes:
    """An event of a completion, with ``tokens`` token ids."""
    ids = {} if tokens is None else {"token_ids": list(range(tokens))}
    return event({"choices": [{"index": 0, "text": said, "finish_reason": finish, **ids}]})


def delta(said: dict[str, str], finish: str | None = None) -> bytes:
    """An event of a chat."""
    return event({"choices": [{"index": 0, "delta": said, "finish_reason": finish}]})


def usage(tokens: int) -> bytes:
    """The event with the usage of the whole answer."""
    return event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": tokens}})


def answer_of(reads: Sequence[Read]) -> Answer:
    parser, answer = SseParser(), Answer()
    for t_s, data in reads:
        for one in parser.feed(t_s, data):
            answer.read(one)
    for one in parser.finish():
        answer.read_cut_off(one)
    return answer


def record_of(reads: Sequence[Read]) -> RequestRecord:
    """Of a request that was due and sent at 0."""
    answer = answer_of(reads)
    return RequestRecord(
        request_id="r",
        arm="A",
        run="1",
        intended_s=0.0,
        sent_s=0.0,
        first_byte_s=reads[0][0],
        events=answer.events,
        ended_s=reads[-1][0],
        outcome=outcome_of(answer, None),
        counting=answer.counting,
        output_tokens=answer.output_tokens,
        finish_reason=answer.finish_reason,
        answer_s=answer.answer_s,
        digest=answer.digest,
    )
