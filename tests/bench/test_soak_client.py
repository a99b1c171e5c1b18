"""A soak notices each fault it is there for: a server that does it is found out."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from splitserve.bench import soak_client
from splitserve.bench.soak import SoakReading
from splitserve.bench.soak_client import Client, Tally
from splitserve.engine.fake import FakeConfig, fake_tokens

ENGINE = FakeConfig()
Answer = Callable[[web.StreamResponse, list[int]], Awaitable[None]]


def event(tokens: list[int]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"token_ids": tokens}]}).encode() + b"\n\n"


async def right(out: web.StreamResponse, tokens: list[int]) -> None:
    await out.write(event(tokens) + b"data: [DONE]\n\n")


async def wrong_token(out: web.StreamResponse, tokens: list[int]) -> None:
    await out.write(event([tokens[0] + 1, *tokens[1:]]) + b"data: [DONE]\n\n")


async def token_twice(out: web.StreamResponse, tokens: list[int]) -> None:
    await out.write(event([tokens[0], *tokens]) + b"data: [DONE]\n\n")


async def token_missing(out: web.StreamResponse, tokens: list[int]) -> None:
    await out.write(event(tokens[:-1]) + b"data: [DONE]\n\n")


async def cut_off(out: web.StreamResponse, tokens: list[int]) -> None:
    await out.write(event(tokens))


async def error_event(out: web.StreamResponse, tokens: list[int]) -> None:
    error = {"error": {"message": "m", "type": "t", "param": None, "code": "worker_failed"}}
    await out.write(event(tokens[:1]) + b"data: " + json.dumps(error).encode() + b"\n\n")


async def silence(out: web.StreamResponse, tokens: list[int]) -> None:
    await out.write(event(tokens[:1]))
    await asyncio.sleep(30)


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (right, "whole"),
        (wrong_token, "wrong"),
        (token_twice, "wrong"),
        (token_missing, "wrong"),
        (cut_off, "lost"),
        (error_event, "lost"),
        (silence, "hung"),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
async def test_each_end_is_counted_as_what_it_is(
    answer: Answer, counted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = await ask_once(answer, monkeypatch)
    ends = {name: getattr(tally, name) for name in ENDS}
    assert ends == {**dict.fromkeys(ENDS, 0), counted: 1}


async def test_a_refusal_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = await ask_once(None, monkeypatch)
    assert (tally.refused, tally.lost) == (1, 0)
    assert tally.errors == {"429 overloaded": 1}


ENDS = ("whole", "left", "refused", "lost", "wrong", "hung")


async def ask_once(answer: Answer | None, monkeypatch: pytest.MonkeyPatch) -> Tally:
    monkeypatch.setattr(soak_client, "LEAVING", 0.0)
    monkeypatch.setattr(soak_client, "SILENCE_S", 0.3)
    over = asyncio.Event()

    async def complete(request: web.Request) -> web.StreamResponse:
        over.set()  # the client ends after this one
        asked = await request.json()
        if answer is None:
            return web.json_response({"error": {"code": "overloaded"}}, status=429)
        out = web.StreamResponse()
        await out.prepare(request)
        await answer(out, fake_tokens(asked["prompt"], asked["max_tokens"], config=ENGINE))
        return out

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    tally = Tally()
    try:
        async with aiohttp.ClientSession() as session:
            host, port = runner.addresses[0][:2]
            client = Client(session, f"http://{host}:{port}", "m", ENGINE, tally, "1")
            await client.run(over)
    finally:
        await runner.cleanup()
    return tally


class TestVerdict:
    """What the exit code is made of."""

    def reading(self, **counts: int) -> SoakReading:
        names = ("requests", *ENDS, "leaked_blocks", "kills", "freezes", "rolls")
        zero = dict.fromkeys(names, 0)
        return SoakReading(seconds=1.0, streams=1, seed=0, errors={}, **{**zero, **counts})

    def test_clean_needs_an_answer(self) -> None:
        assert self.reading(requests=2, whole=1, left=1).clean
        assert not self.reading(requests=1, left=1).clean

    @pytest.mark.parametrize("fault", ["lost", "wrong", "hung", "leaked_blocks"])
    def test_each_fault_spoils_it(self, fault: str) -> None:
        assert not self.reading(requests=9, whole=8, **{fault: 1}).clean
