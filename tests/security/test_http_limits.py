"""A client that sends too much, too slowly or in a form of its own is refused, early."""

import asyncio
import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from security.served import Served, serving
from splitserve.errors import CallerError
from splitserve.frontend.body import ClientGone, read_body
from splitserve.frontend.config import FrontendConfig
from splitserve.processes import http_limits
from splitserve.processes.http_limits import MAX_HEAD_BYTES, MAX_HEADERS, MAX_LEFT_BYTES

COMPLETION = "/v1/completions"
PIECE = 16 * 1024
# More than the sockets of both ends hold between them.
SOCKETS_HOLD = 16 * 1024 * 1024


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with serving() as found:
        yield found


def still_serves(gateway: Served) -> None:
    answer = httpx.post(gateway.url + COMPLETION, json={"prompt": "x"})
    assert answer.json()["choices"][0]["text"] == "fine"


def answer_of(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and error of the one answer that comes before the connection ends."""
    data = b""
    while piece := received(connection):
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""


def send_without_end(connection: socket.socket, piece: bytes) -> int:
    """Bytes taken until the server hung up; fails when it takes more than any limit."""
    sent = 0
    while sent < MAX_LEFT_BYTES + SOCKETS_HOLD:
        try:
            sent += connection.send(piece)
        except (BrokenPipeError, ConnectionResetError):
            return sent
    raise AssertionError(f"the server took {sent} bytes and goes on")


REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /health HTTP/1.1\r\nx-long: ", b"x" * PIECE),
        (b"GET /health HTTP/1.1\r\n", b"x" * PIECE),
        (b"GET /", b"x" * PIECE),
        (b"GET /health HTTP/1.1\r\n", b"a: b\r\n" * 1000),
        (REQUEST + b"transfer-encoding: chunked\r\n\r\n1;", b"x" * PIECE),
        (REQUEST + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 1000),
        (REQUEST + b"transfer-encoding: chunked\r\n\r\n0\r\nx-long: ", b"x" * PIECE),
    ],
    ids=["value", "name", "target", "many", "chunk extension", "trailers", "trailer"],
)
def test_what_never_ends_is_cut_off(gateway: Served, begin: bytes, piece: bytes) -> None:
    with gateway.connect() as connection:
        connection.sendall(begin)
        assert send_without_end(connection, piece) < SOCKETS_HOLD
    still_serves(gateway)


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"GET /health HTTP/1.1\r\nx: " + b"x" * MAX_HEAD_BYTES, 431, "headers_too_large"),
        (b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * (MAX_HEADERS + 1), 431, "headers_too_large"),
        (b"GET /" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\n", 414, "target_too_long"),
        (b"nonsense\r\n\r\n", 400, "invalid_http"),
        (b"GET /health HTTP/9.9\r\n\r\n", 400, "invalid_http"),
        (b"\x16\x03\x01\x02\x00\x01", 400, "invalid_http"),
        (REQUEST + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400, "invalid_http"),
        (REQUEST + b"content-length: -1\r\n\r\n", 400, "invalid_http"),
        (REQUEST + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400, "invalid_http"),
    ],
)
def test_each_refusal_is_in_openais_form(
    gateway: Served, head: bytes, status: int, code: str
) -> None:
    with gateway.connect() as connection:
        connection.sendall(head + b"\r\n\r\n" * (status != 400))
        found, error = answer_of(connection)
    assert (found, error["code"], error["type"]) == (status, code, "invalid_request_error")
    still_serves(gateway)


def test_large_headers_within_the_limits_are_taken(gateway: Served) -> None:
    headers = {f"x-{number}": "x" * 200 for number in range(MAX_HEADERS - 10)}
    assert httpx.get(f"{gateway.url}/health", headers=headers).status_code == 200


def test_limits_are_those_of_a_request_and_not_of_a_connection(gateway: Served) -> None:
    with httpx.Client() as client:
        for _ in range(5):
            headers = {"x-long": "x" * (MAX_HEAD_BYTES // 2)}
            assert client.get(f"{gateway.url}/health", headers=headers).status_code == 200


def test_a_body_that_goes_on_after_its_answer_is_cut_off(gateway: Served) -> None:
    """413 comes at once; then the client may finish what it is sending, within reason."""
    with gateway.connect() as connection:
        connection.sendall(REQUEST + b"transfer-encoding: chunked\r\n\r\n")
        sent = send_without_end(connection, b"%x\r\n" % PIECE + b"x" * PIECE + b"\r\n")
    assert sent < MAX_LEFT_BYTES + SOCKETS_HOLD
    still_serves(gateway)


@pytest.mark.parametrize("head", [b"", b"GET /health HTTP/1.1\r\nhost:"], ids=["silent", "slow"])
def test_whoever_does_not_finish_its_headers_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(http_limits, "HEAD_TIMEOUT_S", 0.05)
    monkeypatch.setattr(http_limits, "FIRST_BYTE_TIMEOUT_S", 0.05)
    with serving() as gateway, gateway.connect() as connection:
        connection.sendall(head)
        if head:
            assert answer_of(connection)[0] == 408
        assert received(connection) == b""
        still_serves(gateway)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "identity, gzip", "x"])
def test_compressed_bodies_are_not_taken(gateway: Served, encoding: str) -> None:
    body = gzip.compress(b'{"prompt": "' + b"x" * 1_000_000 + b'"}')
    for path in (COMPLETION, "/v1/chat/completions", "/tokenize", "/inference/v1/abort_requests"):
        answer = httpx.post(
            gateway.url + path, content=body, headers={"content-encoding": encoding}
        )
        assert answer.status_code == 415
        assert answer.json()["error"]["code"] == "unsupported_content_encoding"
    identity = httpx.post(
        gateway.url + COMPLETION,
        content=b'{"prompt":"x"}',
        headers={"content-encoding": "Identity"},
    )
    assert identity.status_code == 200


async def test_a_body_that_trickles_is_given_up() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(CallerError) as caught:
        await read_body({"headers": []}, never, 100, timeout_s=0.01)
    assert (caught.value.status, caught.value.code) == (408, "request_timeout")


async def test_a_client_that_leaves_within_its_body_is_told_apart() -> None:
    async def gone() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        await read_body({"headers": []}, gone, 100)


async def test_no_more_of_a_body_is_read_than_its_limit() -> None:
    read = 0

    async def endless() -> Any:
        nonlocal read
        read += 1000
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    with pytest.raises(CallerError) as caught:
        await read_body({"headers": []}, endless, 10_000)
    assert caught.value.status == 413
    assert read == 11_000


@pytest.mark.parametrize("n", [0, -1, 129, 16385, 10**6, 10**18, 10**30])
def test_a_huge_n_is_refused_before_anything_is_made_of_it(gateway: Served, n: int) -> None:
    before = len(gateway.generator.requests)
    for path, body in (
        (COMPLETION, {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ):
        answer = httpx.post(gateway.url + path, json={**body, "n": n})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")
    assert len(gateway.generator.requests) == before


def test_many_prompts_times_n_is_refused(gateway: Served) -> None:
    before = len(gateway.generator.requests)
    body = {"prompt": ["x"] * 100_000, "n": 64}
    assert httpx.post(gateway.url + COMPLETION, json=body).status_code == 400
    assert len(gateway.generator.requests) == before


@pytest.mark.parametrize("field", ["metadata", "structured_outputs", "logit_bias", "unknown"])
def test_deep_json_is_refused_wherever_it_stands(gateway: Served, field: str) -> None:
    deep = b'{"prompt":"x","%s":%s%s}' % (field.encode(), b'{"a":' * 50_000, b"1" + b"}" * 50_000)
    for path in (COMPLETION, "/tokenize", "/inference/v1/generate", "/v1/completions/derender"):
        answer = httpx.post(gateway.url + path, content=deep)
        assert answer.status_code == 400, path
    still_serves(gateway)


def test_no_page_of_another_site_may_ask(gateway: Served) -> None:
    headers = {
        "origin": "https://elsewhere.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    preflight = httpx.options(gateway.url + COMPLETION, headers=headers)
    assert preflight.status_code == 405
    answer = httpx.post(gateway.url + COMPLETION, json={"prompt": "x"}, headers=headers)
    for found in (preflight, answer):
        assert not [name for name in found.headers if name.startswith("access-control")]


def test_a_body_over_the_limit_is_not_kept() -> None:
    with serving(config=FrontendConfig(max_body_bytes=1000)) as gateway:
        answer = httpx.post(gateway.url + COMPLETION, content=b"x" * 1001)
        assert answer.status_code == 413
        still_serves(gateway)
