"""The header by which a client says that requests belong together."""

import httpx
import pytest
from starlette.types import Scope

from frontend.conftest import Serve
from frontend.live import Live
from frontend.scripted import ScriptedGenerator, saying
from splitserve.frontend.session import session_of
from splitserve.frontend.tokenizer import Tokenizer


def scope(*headers: tuple[bytes, bytes]) -> Scope:
    return {"headers": list(headers)}


def named(value: bytes, owner: str = "") -> str:
    return session_of(scope((b"accept", b"x"), (b"x-session-id", value)), "X-Session-Id", owner)


def test_the_same_word_of_the_same_owner_is_the_same_session() -> None:
    assert named(b"one") == named(b"one") != ""
    names = {named(b"one"), named(b"two"), named(b"one", "alice"), named(b"eone", "alic")}
    assert len(names) == 4


@pytest.mark.parametrize(
    "headers",
    [(), ((b"x-session", b"s"),), ((b"x-session-id", b""),)],
    ids=["no", "other", "empty"],
)
def test_without_the_header_there_is_no_session(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert session_of(scope(*headers), "x-session-id", "alice") == ""


@pytest.mark.parametrize("value", [b"\xff\x00\r\n", b"http://10.0.0.1:1", b"x" * 60_000])
def test_nothing_of_the_clients_text_goes_on(value: bytes) -> None:
    assert len(named(value)) == 32
    assert set(named(value)) <= set("0123456789abcdef")


def test_a_request_carries_its_session(serve: Serve, tokenizer: Tokenizer) -> None:
    generator = ScriptedGenerator(saying(tokenizer.encode_prompt("The lazy dog.")))
    live: Live = serve(generator)
    for headers in ({"X-Session-ID": "s"}, {}):
        httpx.post(f"{live.url}/v1/completions", json={"prompt": "x"}, headers=headers)
    said, silent = generator.requests
    assert said.session == named(b"s")
    assert silent.session == ""
