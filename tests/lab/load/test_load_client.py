"""The client on real sockets; what streams say is the conformance cases' part."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from splitserve.clock import monotonic
from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.record import Outcome, from_line, to_line
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.mock.case import (
    DONE,
    LAST_CHUNK,
    STREAM_HEAD,
    chunked,
    completion,
    event,
    script_of,
    total,
)
from splitserve.lab.mock.script import Ending, Script, Send
from splitserve.lab.mock.server import MockServer

SAID = [event(completion("a", 1, "stop")), total(1), DONE]
ANSWER = script_of(SAID, pace_s=0.0)
LIMITS = Limits(connect_s=5, first_s=20, gap_s=20, total_s=20)


def request(name: str) -> LoadRequest:
    return LoadRequest(name, (101, 102), 1, session="s", turn=2)


@asynccontextmanager
async def client_of(url: str, headers: dict[str, str] | None = None) -> AsyncIterator[LoadClient]:
    target = await resolve(url, headers)
    client = LoadClient(target, Asking("m"), Labels("A", "run-1", monotonic()), LIMITS)
    try:
        yield client
    finally:
        client.close()


async def test_a_record_says_whose_it_is_and_keeps_its_times_in_order() -> None:
    async with MockServer(lambda *_: ANSWER) as server, client_of(server.url) as client:
        record = await client.send(request("r1"), 0.0, warmup=True)
    assert (record.request_id, record.arm, record.run) == ("r1", "A", "run-1")
    assert (record.session, record.turn, record.warmup) == ("s", 2, True)
    assert (record.outcome, record.done, record.status) == (Outcome.OK, True, 200)
    assert record.sent_s is not None
    assert record.first_byte_s is not None
    assert record.lag_s == record.sent_s > 0
    times = [record.sent_s, record.first_byte_s, *(t_s for t_s, _ in record.events), record.ended_s]
    assert times == sorted(times)
    assert from_line(to_line(record)) == record
    assert json.loads(to_line(record))["schema"] == "request/1"


async def test_a_request_is_not_sent_before_it_is_due() -> None:
    async with MockServer(lambda *_: ANSWER) as server, client_of(server.url) as client:
        record = await client.send(request("r1"), client.now() + 0.05)
    assert record.lag_s is not None
    assert record.lag_s >= 0


async def test_a_connection_is_used_again_unless_the_server_ends_it() -> None:
    whole = chunked(b"".join(SAID)) + LAST_CHUNK
    closing_head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    kept = Script((Send(0.0, STREAM_HEAD + whole),))
    closing = Script((Send(0.0, closing_head + whole),), Ending.CLOSE)
    scripts = {"1": kept, "2": closing, "3": kept}
    async with MockServer(lambda name, _: scripts[name]) as server, client_of(server.url) as client:
        records = [await client.send(request(name), 0.0) for name in scripts]
    assert {record.outcome for record in records} == {Outcome.OK}
    assert [record.reused_connection for record in records] == [False, True, False]


async def test_warmed_connections_are_opened_before_any_request() -> None:
    async with MockServer(lambda *_: ANSWER) as server, client_of(server.url) as client:
        await client.warm(3)
        records = await asyncio.gather(*(client.send(request(str(at)), 0.0) for at in range(3)))
    assert {record.outcome for record in records} == {Outcome.OK}


async def test_the_head_carries_the_id_the_headers_and_the_prefix() -> None:
    target = await resolve("http://127.0.0.1:9/base/", {"Authorization": "Bearer x"})
    head = target.head("/v1/completions", "r1", 5)
    assert head.startswith(b"POST /base/v1/completions HTTP/1.1\r\nHost: 127.0.0.1:9\r\n")
    assert b"\r\nX-Request-Id: r1\r\nAuthorization: Bearer x\r\n" in head
    assert head.endswith(b"\r\nContent-Length: 5\r\n\r\n")


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://"])
async def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        await resolve(url)


async def test_a_host_that_nobody_knows_is_unavailable() -> None:
    with pytest.raises(UnavailableError, match=r"no-such-host\.invalid"):
        await resolve("http://no-such-host.invalid:1")


async def test_a_header_cannot_smuggle_in_another() -> None:
    with pytest.raises(ConfigError, match="line end"):
        await resolve("http://127.0.0.1:9", {"A": "b\r\nC: d"})


async def test_a_refused_connection_is_a_record_and_no_exception() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        async with client_of(f"http://127.0.0.1:{unheard.getsockname()[1]}") as client:
            record = await client.send(request("r1"), 0.0)
    assert (record.outcome, record.sent_s, record.events) == (Outcome.CONNECT_ERROR, None, [])
    assert "Refused" in record.error


async def test_every_address_of_the_host_is_tried() -> None:
    async with MockServer(lambda *_: ANSWER) as server:
        target = replace(await resolve(server.url), addresses=("127.0.0.2", "127.0.0.1"))
        client = LoadClient(target, Asking("m"), Labels("A", "run-1", monotonic()), LIMITS)
        record = await client.send(request("r1"), 0.0)
        client.close()
    assert record.outcome is Outcome.OK


async def test_a_run_that_waits_no_longer_cuts_its_requests() -> None:
    silent = Script((), Ending.HOLD)
    async with MockServer(lambda *_: silent) as server, client_of(server.url) as client:
        record = await client.send(request("r1"), 0.0, cut_s=client.now())
    assert record.outcome is Outcome.TIMEOUT_TOTAL
    assert record.sent_s is not None


async def test_an_unsent_request_has_a_record_too() -> None:
    async with client_of("http://127.0.0.1:9") as client:
        record = client.unsent(request("r1"), 3.0, Outcome.NEVER_SENT)
    assert (record.outcome, record.sent_s, record.ended_s) == (Outcome.NEVER_SENT, None, 3.0)


def test_a_line_of_another_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match="request record"):
        from_line(b'{"schema": "request/2"}')
