"""What went wrong inside stays in the log: a client learns what it can act on, and an id."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from security.served import Served, serving
from splitserve.errors import (
    BugError,
    ConfigError,
    OverloadError,
    PeerError,
    ProtocolMismatch,
    TransferFailed,
    UnavailableError,
    WorkerLost,
)

COMPLETION, CHAT = "/v1/completions", "/v1/chat/completions"
USER = {"role": "user", "content": "x"}
BROKEN_PICTURES = [
    b"\x89PNG\r\n\x1a\n broken",
    b"\xff\xd8\xff broken",
    b"GIF89a broken",
    b"RIFF\x00\x00\x00\x00WEBP",
    b"BM broken",
]

INNER = (
    "worker prefill-0 at unix:/run/user/0/splitserve-x/prefill-0.sock, tcp 10.1.2.3:9000, "
    "object at 0x7f3a2b1c, /home/me/models/secret, HOME=/root, SPLITSERVE_SECRET=abc"
)
"""What errors of the inside may say, and clients must not read."""

LEAKS = {
    "memory address": re.compile(r"0x[0-9a-fA-F]{4,}"),
    "socket": re.compile(r"unix:|tcp:|\.sock\b"),
    "host and port": re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b|localhost:\d+"),
    "file": re.compile(r"/(home|root|usr|tmp|run|etc|var|opt|work|proc)\b|\.py\b"),
    "stack": re.compile(r"Traceback|File \"|line \d+, in |<frame|\bself\b"),
    "environment": re.compile(r"SPLITSERVE_|HOME=|PATH="),
    "worker": re.compile(r"prefill-0|decode-0"),
    "class": re.compile(r"splitserve\.|<class|pydantic|msgspec|starlette|jinja2|Error\b(?!\")"),
}


def leaks(text: str) -> list[str]:
    return [name for name, pattern in LEAKS.items() if pattern.search(text)]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with serving() as found:
        yield found


def test_the_check_sees_what_it_is_for() -> None:
    found = leaks(f"Traceback: pydantic {INNER}")
    assert set(found) == set(LEAKS)
    assert leaks('{"error": {"message": "\'n\': must be at most 128", "code": "x"}}') == []


@pytest.mark.parametrize(
    "error",
    [
        WorkerLost(INNER),
        TransferFailed(INNER),
        ProtocolMismatch(INNER),
        PeerError(INNER),
        BugError(INNER),
        ConfigError(INNER),
        UnavailableError(INNER),
        OSError(2, INNER, "/run/user/0/x.sock"),
        ConnectionRefusedError(INNER),
        ValueError(INNER),
        RuntimeError(INNER),
        KeyError(INNER),
        MemoryError(INNER),
        RecursionError(INNER),
        TimeoutError(INNER),
        AssertionError(INNER),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_inside_tells_an_id_and_nothing_of_the_inside(
    error: Exception, stream: bool
) -> None:
    with serving(lambda _: [error]) as gateway:
        answer = httpx.post(gateway.url + COMPLETION, json={"prompt": "x", "stream": stream})
    assert leaks(answer.text) == []
    assert answer.headers["x-request-id"] in answer.text
    assert 500 <= answer.status_code < 600


def test_an_overload_says_when_to_come_back() -> None:
    with serving(lambda _: [OverloadError("no room now", retry_after_s=2)]) as gateway:
        answer = httpx.post(gateway.url + COMPLETION, json={"prompt": "x"})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")
    assert leaks(answer.text) == []


def picture(data: bytes) -> dict[str, Any]:
    url = "data:image/png;base64," + data.hex()
    return {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
        ]
    }


def media(url: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
        ]
    }


WRONG: list[tuple[str, Any]] = [
    *((CHAT, picture(data)) for data in BROKEN_PICTURES),
    (CHAT, media("file:///etc/passwd")),
    (CHAT, media("http://169.254.169.254/latest")),
    (CHAT, {"messages": [USER], "chat_template": "{{ ''.__class__.__mro__ }}"}),
    (CHAT, {"messages": [USER], "chat_template_kwargs": {"tokenize": True}}),
    (CHAT, {"messages": [USER], "chat_template_kwargs": {"messages": 1}}),
    (CHAT, {"messages": [USER], "tools": [{"type": "x"}]}),
    (CHAT, {"messages": [{"role": "tool", "content": {}}]}),
    (CHAT, {"messages": [USER], "response_format": {"type": "json_schema", "json_schema": 1}}),
    (CHAT, {"messages": [USER], "response_format": {"type": "nonsense"}}),
    (CHAT, {"messages": [USER], "guided_regex": "(["}),
    (CHAT, {"messages": [USER], "guided_grammar": "root ::= ("}),
    (CHAT, {"messages": [USER], "guided_json": {"type": "something"}}),
    (CHAT, {"messages": [USER], "guided_json": {"$ref": "#/nowhere"}}),
    (CHAT, {"model": "nobody/knows-it", "messages": [USER]}),
    (COMPLETION, {"prompt": [10**9]}),
    (COMPLETION, {"prompt": {}}),
    (COMPLETION, {"prompt": "x", "logit_bias": {"x": 1}}),
    (COMPLETION, []),
    ("/inference/v1/generate", {"request_id": "r", "token_ids": ["x"], "sampling_params": {}}),
    ("/inference/v1/generate", {}),
    ("/inference/v1/abort_requests", {"request_ids": 1}),
    ("/tokenize", {"prompt": 1}),
    ("/detokenize", {"tokens": [10**9]}),
    ("/v1/chat/completions/derender", {"stream": True, "generate_chunk": {}, "stream_state": "x"}),
    ("/v1/chat/completions/derender", {"generate_response": {"choices": [{"index": -1}]}}),
    ("/v1/completions/derender/session", {"nonsense": 1}),
    ("/v1/responses", {"input": [{"type": "nonsense"}]}),
]


@pytest.mark.parametrize(("path", "body"), WRONG)
def test_a_wrong_request_is_told_what_is_wrong_with_it_alone(
    gateway: Served, path: str, body: Any
) -> None:
    answer = httpx.post(gateway.url + path, json=body)
    assert 400 <= answer.status_code < 500
    assert set(answer.json()) == {"error"}
    assert leaks(answer.text) == []


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":\xff}', b"\x00", b"[" * 100_000, b'{"a":1}x'])
def test_broken_json_is_told_to_be_so_and_not_shown(gateway: Served, body: bytes) -> None:
    for path in (COMPLETION, CHAT, "/tokenize", "/inference/v1/generate", "/v1/responses"):
        answer = httpx.post(gateway.url + path, content=body)
        assert answer.status_code == 400
        assert leaks(answer.text) == []


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/v1/../../etc/passwd", "/v1/models/%2e%2e/x", "//"]
)
def test_a_path_that_is_none_is_404(gateway: Served, path: str) -> None:
    with gateway.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.split()[1] == b"404"
    assert set(json.loads(body)) == {"error"}


def test_no_answer_says_what_serves_it(gateway: Served) -> None:
    assert "server" not in httpx.get(gateway.url + "/health").headers
