"""The text tier as real processes on real sockets."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import pytest
from tiny_model import TEMPLATE

MESSAGES = [{"role": "user", "content": "hello"}]
DERENDER = "/v1/chat/completions/derender"
START_S = 30


@contextmanager
def rendering(model: str, *flags: str | Path) -> Iterator[str]:
    """The URL of a render process; SIGTERM must end it cleanly."""
    read_fd, write_fd = os.pipe()
    command = [sys.executable, "-m", "splitserve", "render", model, "--port", "0"]
    with subprocess.Popen(
        [*command, *map(str, flags), "--status-fd", str(write_fd)],
        pass_fds=(write_fd,),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(write_fd)
        with os.fdopen(read_fd, "rb") as status:
            facts = json.loads(status.readline() or b'{"event": "ended"}')
        try:
            assert facts["event"] == "ready", facts
            yield f"http://127.0.0.1:{facts['port']}"
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=START_S)
        assert process.returncode == 0, log.decode()


def refused(model: str, *flags: str | Path, **env: str) -> tuple[int, str]:
    """Exit code and what it says of a render process that does not start."""
    command = [sys.executable, "-m", "splitserve", "render", model, "--port", "0"]
    done = subprocess.run(
        [*command, *map(str, flags), "--log-level", "warning"],
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S,
        env={**os.environ, **env},
    )
    return done.returncode, done.stderr


def post(url: str, path: str, body: object) -> Any:
    answer = httpx.post(f"{url}{path}", json=body, timeout=START_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tokens(url: str, text: str) -> list[int]:
    return list(post(url, "/tokenize", {"prompt": text})["tokens"])


@pytest.fixture(scope="module")
def url(model: str) -> Iterator[str]:
    with rendering(model) as url:
        yield url


def test_a_request_goes_out_as_tokens_and_comes_back_as_an_answer(url: str) -> None:
    body = {"messages": MESSAGES, "stop": ["ta ga"]}
    rendered = post(url, "/v1/chat/completions/render", body)
    ids = tokens(url, "alpha beta gamma delta")
    answer = post(
        url,
        DERENDER,
        {
            "generate_response": {
                "request_id": rendered["request_id"],
                "choices": [{"index": 0, "token_ids": ids, "finish_reason": "length"}],
            },
            "prompt_token_ids": rendered["token_ids"],
            "chat_request": body,
        },
    )
    assert answer["id"] == rendered["request_id"]
    assert answer["choices"][0]["message"]["content"] == "alpha be"
    assert answer["choices"][0]["stop_reason"] == "ta ga"
    assert answer["usage"]["prompt_tokens"] == len(rendered["token_ids"])


def test_events_of_a_session_come_before_its_body_ends(url: str) -> None:
    address = httpx.URL(url)
    first, *others, last = tokens(url, "alpha beta")
    with socket.create_connection((address.host, address.port), timeout=START_S) as connection:
        reader = connection.makefile("rb")
        connection.sendall(
            f"POST {DERENDER}/session HTTP/1.1\r\nhost: text\r\n"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        connection.sendall(chunked({"chat_request": {"messages": MESSAGES}}) + token(first))
        assert reader.readline().split()[1] == b"200"
        read_until(reader, b'{"content":"a"}')
        connection.sendall(b"".join(map(token, others)) + token(last, "length") + b"0\r\n\r\n")
        rest = read_until(reader, b"data: [DONE]")
        reader.close()
    assert rest.count(b"data: ") == len(others) + 2
    assert b'"finish_reason":"length"' in rest


def token(token_id: int, finish: str | None = None) -> bytes:
    """One chunk of a generate stream, as a piece of a request's body."""
    choice = {"index": 0, "token_ids": [token_id], "finish_reason": finish}
    return chunked({"choices": [choice]})


def chunked(value: object) -> bytes:
    line = json.dumps(value).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


def read_until(reader: BinaryIO, mark: bytes) -> bytes:
    """All lines up to the one that has ``mark``."""
    found = b""
    while line := reader.readline():
        found += line
        if mark in line:
            return found
    raise AssertionError(f"{mark!r} did not come: {found!r}")


def test_replicas_with_one_key_file_serve_one_stream(model: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32).hex().encode())
    key.chmod(0o600)
    flags = ("--state-key-file", key)
    with rendering(model, *flags) as one, rendering(model, *flags) as two:
        ids, state, text = tokens(one, "한국어 alpha"), None, ""
        for place, token_id in enumerate(ids):
            last = place == len(ids) - 1
            choice = {
                "index": 0,
                "token_ids": [token_id],
                "finish_reason": "length" if last else None,
            }
            chunk = {"request_id": "r", "choices": [choice]}
            body = {"stream": True, "generate_chunk": chunk, "stream_state": state}
            answer = post((one, two)[place % 2], DERENDER, body)
            text += answer["chunk"]["choices"][0]["delta"]["content"] or ""
            state = answer["stream_state"]
    assert text == "한국어 alpha"


def test_a_process_with_a_key_of_its_own_refuses_anothers_state(url: str, model: str) -> None:
    chunk = {"choices": [{"index": 0, "token_ids": [5]}]}
    with rendering(model) as other:
        body = {"stream": True, "generate_chunk": chunk}
        state = post(other, DERENDER, body)["stream_state"]
    answer = httpx.post(f"{url}{DERENDER}", json={**body, "stream_state": state})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_stream_state")


def test_it_starts_beside_a_peer_with_the_same_settings(url: str, model: str) -> None:
    with rendering(model, "--agree-with", url) as second:
        assert fingerprint(second) == fingerprint(url)


def fingerprint(url: str) -> Any:
    return httpx.get(f"{url}/fingerprint").json()


def test_it_does_not_start_beside_a_peer_with_other_parsers(url: str, model: str) -> None:
    code, said = refused(model, "--agree-with", url, "--tool-call-parser", "hermes")
    assert code == 2
    (line,) = said.splitlines()
    assert line.startswith("error: --agree-with http://")
    assert "tool_call_parser: 'hermes' here, 'none' at the peer" in line


def test_it_does_not_start_beside_a_peer_with_another_template(
    url: str, model: str, tmp_path: Path
) -> None:
    other = tmp_path / Path(model).name
    other.mkdir()
    for file in Path(model).iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "chat_template.jinja").write_text(TEMPLATE + " ")
    code, said = refused(str(other), "--agree-with", url)
    assert code == 2
    assert "the settings differ in template: " in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--port", "70000"), "--port must be from 0 to 65535"),
        (("--max-model-len", "0"), "--max-model-len must be positive"),
        (("--agree-with", "host:80"), "--agree-with: 'host:80' is no URL"),
        (("--tool-call-parser", "hermse"), "there is no tool call parser 'hermse'"),
        (("--reasoning-parser", "qwen"), "there is no reasoning parser 'qwen'"),
        (("--state-key-file", "/nonexistent"), "--state-key-file /nonexistent: No such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_setting_is_one_line_and_code_2(
    model: str, flags: tuple[str, ...], message: str
) -> None:
    code, said = refused(model, *flags)
    assert code == 2
    (line,) = said.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_short_key_in_the_environment_is_refused(model: str) -> None:
    code, said = refused(model, SPLITSERVE_STATE_KEY="short")
    assert (code, "SPLITSERVE_STATE_KEY has 5 bytes" in said) == (2, True)
