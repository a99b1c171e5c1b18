"""Cases for a served model: how they are written, driven and summed up."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from bench.made_records import record
from splitserve.bench import serve_cases
from splitserve.bench.serve_cases import (
    CASES,
    Case,
    ClientTimes,
    client_times,
    find_served,
    measure_case,
    parse_case,
    warm,
)
from splitserve.errors import ConfigError, UnavailableError


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("512/128x32", Case("512/128x32", 512, 128, 32, 0.0)),
        ("8192/32x1", Case("8192/32x1", 8192, 32, 1, 0.0)),
        ("8192/128@2", Case("8192/128@2", 8192, 128, 0, 2.0)),
        ("64/8@0.5", Case("64/8@0.5", 64, 8, 0, 0.5)),
    ],
)
def test_a_case_is_written_in_one_word(text: str, case: Case) -> None:
    assert parse_case(text) == case


@pytest.mark.parametrize("text", ["", "512", "512/128", "512/128x0", "0/1x1", "1/1@0", "1/1@x"])
def test_what_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a case; write 512/128x32"):
        parse_case(text)


def test_each_device_has_cases_that_can_be_read() -> None:
    assert {kind: len([parse_case(text) for text in texts]) for kind, texts in CASES.items()} == {
        "cpu": 3,
        "cuda": 6,
    }


def test_times_are_those_of_whole_answers_and_failures_count() -> None:
    times = client_times(
        [
            record(0.0, 0.1, 0.12, 0.13),
            record(1.0, 1.3, 1.34),
            record(2.0, 2.1, 5.0, error="500"),
            record(3.0),
        ]
    )
    assert (times.n, times.errors, times.first_error) == (4, 2, "500")
    assert (times.ttft_p50, times.ttft_p99) == (100.0, 300.0)
    assert (times.itl_p50, times.itl_p90, times.itl_max) == (20.0, 40.0, 40.0)
    assert times.first_gap_p50 == 20.0
    assert times.tokens_per_s == pytest.approx(5 / 1.34, rel=0.01)
    assert times.attained == 0.5


def test_a_request_attains_by_its_first_token_and_its_tail() -> None:
    def share(first: float, *gaps: float) -> float:
        tokens = [first]
        for gap in gaps:
            tokens.append(tokens[-1] + gap)
        return client_times([record(0.0, *tokens)]).attained

    assert share(0.9, 0.04) == 1.0
    assert share(1.1, 0.04) == 0.0
    assert share(0.9, *[0.01] * 98, 0.06) == 0.0
    assert share(0.9, *[0.01] * 99, 0.06) == 1.0
    assert share(0.9, *[0.01] * 98, 0.06, 0.06) == 0.0


def test_nothing_answered_has_no_times_and_attains_nothing() -> None:
    times = client_times([record(0.0, error="refused")])
    assert (times.n, times.errors, times.attained, times.tokens_per_s) == (1, 1, 0.0, 0.0)
    assert math.isnan(times.ttft_p50)


@dataclass
class Server:
    """Answers completions at once; ``most`` is how many it had open together."""

    status: int = 200
    bodies: list[dict[str, object]] = field(default_factory=list)
    open: int = 0
    most: int = 0
    url: str = ""

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "served"}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.open += 1
        self.most = max(self.most, self.open)
        answer = web.StreamResponse(
            status=self.status, headers={"Content-Type": "text/event-stream"}
        )
        await answer.prepare(request)
        for token in range(body["max_tokens"]):
            finish = "length" if token == body["max_tokens"] - 1 else None
            choice = {"text": "x", "token_ids": [token], "finish_reason": finish}
            event = {"choices": [choice]}
            await answer.write(f"data: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(0)
        await answer.write(b"data: [DONE]\n\n")
        self.open -= 1
        return answer


@asynccontextmanager
async def served(server: Server) -> AsyncIterator[Server]:
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/completions", server.completions)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        await runner.cleanup()


async def measured(server: Server, *texts: str) -> list[ClientTimes]:
    cases = [parse_case(text) for text in texts]
    found = await find_served(server.url, 48_000, 7)
    await warm(found, cases)
    return [await measure_case(found, case) for case in cases]


async def test_streams_send_their_next_request_when_one_is_answered() -> None:
    async with served(Server()) as server:
        [times] = await measured(server, "16/4x3")
    first, *asked = server.bodies
    assert (times.n, times.errors) == (10, 0)
    # A user asks again as soon as the answer has come, which may be before the server is done.
    assert server.most >= 3
    assert first["max_tokens"] == serve_cases.WARM_TOKENS
    for body in asked:
        assert (body["model"], body["max_tokens"], body["ignore_eos"]) == ("served", 4, True)
        assert len(body["prompt"]) == 16  # type: ignore[arg-type]


async def test_a_rate_sends_requests_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_cases, "OPEN_SECONDS", 0.2)
    async with served(Server()) as server:
        [times] = await measured(server, "16/2@50")
    assert times.n == len(server.bodies) - 1 > 1
    assert times.errors == 0


async def test_no_two_prompts_of_a_run_begin_alike() -> None:
    async with served(Server()) as server:
        await measured(server, "16/1x1", "16/2x1")
    prompts = [tuple(body["prompt"]) for body in server.bodies]  # type: ignore[arg-type]
    assert len(prompts) == 21
    assert len({prompt[:8] for prompt in prompts}) == 21


async def test_a_server_that_fails_the_first_request_is_not_measured() -> None:
    async with served(Server(status=500)) as server:
        with pytest.raises(UnavailableError, match="failed a request to warm up: 500"):
            await measured(server, "16/1x1")


async def test_a_url_that_nobody_listens_at_is_said() -> None:
    with pytest.raises(UnavailableError, match=r"nothing answers at http://127\.0\.0\.1:1"):
        await find_served("http://127.0.0.1:1", 500, 1)
