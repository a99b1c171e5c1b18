"""One long request: lines in, events out while they arrive."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from frontend.scale_out.rig import (
    WEATHER,
    app_of,
    choice,
    ids_of,
    join_chunks,
    logprobs_of,
    parsing_model,
    pieces,
    plain_model,
    text_tier,
)

CHAT = "/v1/chat/completions/derender/session"
COMPLETION = "/v1/completions/derender/session"
MESSAGES = [{"role": "user", "content": "hello"}]
PROMPT = ids_of("hello", end=False)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
IDS = ids_of(f"<think>need weather</think>One moment.\n{CALL}")
ALPHA = ids_of("alpha beta gamma delta")
START: dict[str, Any] = {
    "model": "tiny",
    "prompt_token_ids": PROMPT,
    "chat_request": {"messages": MESSAGES, "tools": [WEATHER]},
}


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


class Open:
    """A request that is still being sent."""

    def __init__(
        self, app: ASGIApp, path: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        self._arriving: asyncio.Queue[Message] = asyncio.Queue()
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": list(headers),
        }
        self.task = asyncio.create_task(app(scope, self._arriving.get, self._sent.put))

    def send(self, body: bytes, *, more: bool = True) -> None:
        self._arriving.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        self._arriving.put_nowait({"type": "http.disconnect"})

    async def next(self) -> Message:
        return await self._sent.get()

    async def rest(self) -> tuple[int, bytes]:
        """Status and body of all that was answered."""
        await self.task
        status, body = 0, b""
        while not self._sent.empty():
            message = self._sent.get_nowait()
            status = message.get("status", status)
            body += message.get("body", b"")
        return status, body


@asynccontextmanager
async def opened(path: str = CHAT, *, plain: bool = False) -> AsyncGenerator[Open]:
    with text_tier(plain_model() if plain else parsing_model()) as tier:
        session = Open(app_of(tier), path)
        try:
            yield session
        finally:
            session.leave()
            await session.task


async def answered(
    body: bytes, path: str = CHAT, *, plain: bool = False
) -> tuple[int, list[dict[str, Any]], bool]:
    """Status, events, and whether [DONE] ended them."""
    async with opened(path, plain=plain) as session:
        session.send(body, more=False)
        status, raw = await session.rest()
    if status != 200:
        return status, [json.loads(raw)], False
    events = [event.removeprefix(b"data: ") for event in raw.split(b"\n\n")[:-1]]
    done = bool(events) and events[-1] == b"[DONE]"
    return status, [json.loads(event) for event in (events[:-1] if done else events)], done


async def test_events_come_while_lines_arrive() -> None:
    async with opened() as session:
        chunks = pieces(IDS, (16,))
        session.send(lines(START) + lines(chunks[0]))
        head, first = await session.next(), await session.next()
        assert head["status"] == 200
        assert dict(head["headers"])[b"content-type"].startswith(b"text/event-stream")
        assert json.loads(first["body"].split(b"\n\n")[0][6:])["choices"][0]["delta"]["role"]
        assert not session.task.done()
        session.send(lines(*chunks[1:]), more=False)
        _, rest = await session.rest()
        assert rest.endswith(b"data: [DONE]\n\n")


async def test_a_session_gives_the_stream_that_a_chat_has() -> None:
    status, events, done = await answered(lines(START, *pieces(IDS, (1, 4, 2))))
    told = join_chunks(events)
    assert (status, done, told.finish) == (200, True, "tool_calls")
    assert (told.reasoning, told.content.strip()) == ("need weather", "One moment.")
    assert told.calls == [("get_weather", '{"city": "Rome"}')]
    assert told.roles == 1
    assert {event["id"] for event in events} == {"generate-tokens-7"}


async def test_events_of_the_generate_stream_may_be_sent_as_they_are() -> None:
    events = b"".join(
        b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in pieces(IDS, (5,))
    )
    body = lines(START) + events + b"data: [DONE]\n\n"
    _, found, done = await answered(body)
    assert done
    assert join_chunks(found).finish == "tool_calls"


async def test_nothing_is_read_after_the_end() -> None:
    body = lines(START, *pieces(IDS, ())) + b"[DONE]\nthis is no JSON\n"
    _, events, done = await answered(body)
    assert done
    assert join_chunks(events).finish == "tool_calls"


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_lines_may_be_cut_anywhere(size: int) -> None:
    body = lines(START, *pieces(IDS, ()))
    async with opened() as session:
        for begin in range(0, len(body), size):
            session.send(body[begin : begin + size])
        session.send(b"", more=False)
        status, raw = await session.rest()
    _, whole, _ = await answered(body)
    events = [json.loads(event[6:]) for event in raw.split(b"\n\n")[:-2]]
    assert status == 200
    assert join_chunks(events).told() == join_chunks(whole).told()


async def test_choices_are_told_apart_by_their_index() -> None:
    streams = zip(pieces(IDS, ()), pieces(IDS, (), index=1), strict=True)
    mixed = [chunk for pair in streams for chunk in pair]
    _, events, done = await answered(lines(START, *mixed))
    first, other = join_chunks(events), join_chunks(events, 1)
    assert done
    assert first.told() == other.told()
    assert first.call_ids != other.call_ids


async def test_a_line_may_bring_several_choices() -> None:
    both = {"choices": [choice(IDS), choice(IDS, 1)]}
    _, events, done = await answered(lines(START, both))
    assert done
    assert join_chunks(events).told() == join_chunks(events, 1).told()


async def test_usage_comes_last_where_it_was_asked_for() -> None:
    cached = {"usage": {"prompt_tokens_details": {"cached_tokens": 2}}, "choices": []}
    start = {**START, "stream_options": {"include_usage": True}}
    _, events, done = await answered(lines(start, *pieces(IDS, (9,)), cached))
    assert done
    assert events[-1]["choices"] == []
    assert events[-1]["usage"] == {
        "prompt_tokens": len(PROMPT),
        "completion_tokens": len(IDS),
        "total_tokens": len(PROMPT) + len(IDS),
        "prompt_tokens_details": {"cached_tokens": 2},
    }


async def test_the_requests_own_stream_options_count_too() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    request = {**START["chat_request"], "stream": True, "stream_options": options}
    _, events, _ = await answered(lines({**START, "chat_request": request}, *pieces(IDS, ())))
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[-1] == len(IDS)


async def test_a_completion_session_writes_text() -> None:
    start = {"completion_request": {"prompt": "x", "stop": "ta ga"}, "request_id": "mine"}
    _, events, done = await answered(lines(start, *pieces(ALPHA, ())), COMPLETION, plain=True)
    texts = [one["text"] for event in events for one in event["choices"]]
    assert done
    assert "".join(texts) == "alpha be"
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert {(event["id"], event["object"]) for event in events} == {("mine", "text_completion")}


async def test_logprobs_come_with_their_tokens() -> None:
    scores = logprobs_of(ALPHA)
    _, events, _ = await answered(lines({}, *pieces(ALPHA, (3,), logprobs=scores)), plain=True)
    assert [one["logprob"] for one in join_chunks(events).logprobs] == [
        score["logprob"] for score in scores
    ]


async def test_a_bad_line_is_an_error_event_after_the_good_ones() -> None:
    good = pieces(IDS, (16, 4))[:2]
    status, events, done = await answered(lines(START, *good) + b'{"choices": 5}\n')
    assert (status, done) == (200, False)
    assert join_chunks(events[:-1]).reasoning != ""
    error = events[-1]["error"]
    assert error["param"] == "choices"
    assert error["message"].startswith("line 4:")


async def test_a_bad_first_line_has_a_status() -> None:
    for first, param in (
        ({**START, "model": "other"}, "model"),
        ({"prompt_token_ids": PROMPT}, "chat_request"),
        ({"chat_request": START["chat_request"]}, "prompt_token_ids"),
        ({**START, "prompt_token_ids": [5] * 5000}, "prompt_token_ids"),
        (pieces(IDS, ())[0], "choices"),
    ):
        status, (body,), _ = await answered(lines(first, *pieces(IDS, ())))
        assert status == (404 if param == "model" else 400)
        assert body["error"]["param"] == param


@pytest.mark.parametrize("body", [b"", b"\n\n", lines(START), b"{"])
async def test_a_session_without_an_answer_is_a_400(body: bytes) -> None:
    status, _, _ = await answered(body)
    assert status == 400


async def test_an_answer_without_an_end_is_an_error_event() -> None:
    status, events, done = await answered(lines(START, *pieces(IDS, ())[:-1]))
    assert (status, done) == (200, False)
    assert events[-1]["error"]["code"] == "incomplete_answer"


async def test_logprobs_that_stop_coming_are_an_error() -> None:
    first, last, *_ = pieces(ALPHA, (2,), logprobs=logprobs_of(ALPHA))
    last["choices"][0]["logprobs"] = None
    _, events, done = await answered(lines({}, first, last), plain=True)
    assert not done
    assert events[-1]["error"]["param"] == "choices[0].logprobs"


async def test_an_answer_beyond_the_context_is_an_error() -> None:
    _, events, done = await answered(lines({}, *pieces([5] * 600, (300,))), plain=True)
    assert not done
    assert events[-1]["error"]["code"] == "context_length_exceeded"


async def test_more_choices_than_allowed_are_an_error() -> None:
    many = {"choices": [choice(ALPHA, index) for index in range(129)]}
    status, events, _ = await answered(lines({}, many), plain=True)
    assert status == 400
    assert events[0]["error"]["param"] == "choices[128].index"


async def test_a_line_without_an_end_is_refused_before_memory_is() -> None:
    async with opened() as session:
        session.send(lines(START, *pieces(IDS, (16,))[:1]))
        await session.next()
        for _ in range(17):
            session.send(b"x" * 65536)
        _, rest = await session.rest()
    assert json.loads(rest.split(b"data: ")[-1])["error"]["code"] == "request_too_large"


async def test_a_client_that_leaves_ends_the_session() -> None:
    async with opened() as session:
        session.send(lines(START, *pieces(IDS, (16,))[:1]))
        await session.next()
        session.leave()
        _, rest = await session.rest()
    assert b"[DONE]" not in rest
    assert b"error" not in rest
