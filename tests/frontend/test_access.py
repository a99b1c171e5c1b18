"""Keys let their owners in, nobody else, and are told to nobody."""

import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from starlette.types import Message, Receive, Scope, Send

from frontend.scale_out.rig import plain_model, text_tier
from frontend.scripted import ScriptedGenerator, saying
from splitserve.errors import ConfigError
from splitserve.frontend.access import (
    OPEN_PATHS,
    Guard,
    KeyRing,
    append_key,
    guarded,
    keys_asked,
    new_key,
    owner_of,
)
from splitserve.frontend.app import create_app
from splitserve.frontend.scale_out.app import create_text_app

ALICE, ALICE_LINE = new_key("alice")
BOB, BOB_LINE = new_key("bob")
COMPLETION = "/v1/completions"


def key_file(folder: Path, *lines: str, mode: int = 0o600) -> Path:
    file = folder / "keys"
    file.write_text("\n".join(lines), encoding="utf-8")
    file.chmod(mode)
    return file


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    ring = KeyRing.load(
        key_file(tmp_path, "# ours", ALICE_LINE, "", f"{BOB_LINE}  # until May"), {}
    )
    assert ring is not None
    return ring


class Echo:
    """An application that answers with the owner it was told of."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = owner_of(scope).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def ask(guard: Guard, *values: bytes, path: str = "/v1/models") -> tuple[int, bytes]:
    """Status and body for a request with these Authorization headers."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"x"), *((b"authorization", value) for value in values)]
    await guard({"type": "http", "path": path, "headers": headers}, receive, send)
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER   "])
async def test_a_key_lets_its_owner_in(keys: KeyRing, scheme: bytes) -> None:
    assert await ask(Guard(Echo(), keys), scheme + ALICE.encode()) == (200, b"alice")
    assert await ask(Guard(Echo(), keys), scheme + BOB.encode()) == (200, b"bob")


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b""],
        [b"Bearer"],
        [b"Bearer "],
        [b"Bearer wrong"],
        [ALICE.encode()],
        [b"Basic " + ALICE.encode()],
        [b"Bearer " + ALICE.encode() + b"x"],
        [b"Bearer " + ALICE.encode()[:-1]],
        [b"Bearer " + ALICE.upper().encode()],
        [b"Bearer " + b"x" * 100_000],
        [b"Bearer \xff\xfe"],
        [b"Bearer " + ALICE_LINE.rpartition(":")[2].encode()],
        [b"Bearer " + ALICE.encode(), b"Bearer " + ALICE.encode()],
        [b"Bearer wrong", b"Bearer " + ALICE.encode()],
    ],
)
async def test_whoever_has_no_key_gets_401_in_openais_form(
    keys: KeyRing, values: list[bytes]
) -> None:
    status, body = await ask(Guard(Echo(), keys), *values)
    error: dict[str, Any] = json.loads(body)["error"]
    assert (status, error["code"]) == (401, "invalid_api_key")
    assert set(error) == {"message", "type", "param", "code"}


@given(st.binary(max_size=600))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_other_bytes_are_a_key(keys: KeyRing, value: bytes) -> None:
    status, _ = await ask(Guard(Echo(), keys), b"Bearer " + value)
    assert status == 401


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
async def test_probes_and_scrapers_need_no_key(keys: KeyRing, path: str) -> None:
    assert await ask(Guard(Echo(), keys), path=path) == (200, b"")


@pytest.mark.parametrize(
    "path", ["/health/", "//health", "/HEALTH", "/health/../v1/models", "/fingerprint", "/", ""]
)
async def test_what_only_looks_like_an_open_path_needs_one(keys: KeyRing, path: str) -> None:
    assert (await ask(Guard(Echo(), keys), path=path))[0] == 401


def test_without_keys_there_is_no_guard() -> None:
    app = Echo()
    assert guarded(app, None) is app


async def test_what_is_no_request_passes(keys: KeyRing) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    await Guard(app, keys)({"type": "lifespan"}, nothing, nothing)
    assert seen == ["lifespan"]


async def test_the_gateway_asks_for_a_key_and_tells_whose_request_it_is(
    keys: KeyRing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    model = plain_model()
    generator = ScriptedGenerator(saying(model.tokenizer.encode_prompt("fine")))
    with text_tier(model) as tier:
        app = create_app(generator, tier, CollectorRegistry(), lambda: None, access=keys)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            refused = await client.post(COMPLETION, json={"prompt": "x"})
            assert (refused.status_code, generator.requests) == (401, [])
            assert refused.headers["www-authenticate"] == "Bearer"
            answer = await client.post(
                COMPLETION, json={"prompt": "x"}, headers={"authorization": f"Bearer {ALICE}"}
            )
            assert answer.status_code == 200
            assert generator.requests[0].owner == "alice"
            assert (await client.get("/health")).status_code == 200
            for path in ("/v1/models", "/openapi.json", "/fingerprint"):
                assert (await client.get(path)).status_code == 401
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert ALICE not in logged
    assert ALICE not in refused.text


async def test_the_text_tier_asks_for_a_key_too(keys: KeyRing) -> None:
    with text_tier(plain_model()) as tier:
        transport = httpx.ASGITransport(create_text_app(tier, CollectorRegistry(), keys))
        async with httpx.AsyncClient(transport=transport, base_url="http://text") as client:
            assert (await client.post("/tokenize", json={"prompt": "x"})).status_code == 401
            headers = {"authorization": f"Bearer {BOB}"}
            answer = await client.post("/tokenize", json={"prompt": "x"}, headers=headers)
            assert answer.status_code == 200


def test_a_file_holds_hashes_only(tmp_path: Path) -> None:
    key, line = new_key("carol")
    assert line == f"carol:sha256:{hashlib.sha256(key.encode()).hexdigest()}"
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{43}", key)
    assert new_key("carol")[0] != key


def test_the_environment_holds_one_key_more(tmp_path: Path) -> None:
    alone = "k" * 16
    ring = KeyRing.load(key_file(tmp_path, ALICE_LINE), {"SPLITSERVE_API_KEY": alone})
    assert ring is not None
    assert ring.owner(ALICE.encode()) == "alice"
    assert ring.owner(alone.encode()) == "environment"
    assert ring.owner(b"") is None


@pytest.mark.parametrize("empty", [{}, {"SPLITSERVE_API_KEY": ""}, {"SPLITSERVE_API_KEY": "  "}])
def test_neither_file_nor_variable_asks_for_no_key(empty: dict[str, str]) -> None:
    assert KeyRing.load(None, empty) is None
    assert not keys_asked(None, empty)


def test_a_file_or_a_variable_asks_for_keys(tmp_path: Path) -> None:
    assert keys_asked(tmp_path / "keys", {})
    assert keys_asked(None, {"SPLITSERVE_API_KEY": "k"})


@pytest.mark.parametrize("value", ["short", "x" * 513])
def test_a_key_in_the_environment_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="SPLITSERVE_API_KEY has") as caught:
        KeyRing.load(None, {"SPLITSERVE_API_KEY": value})
    assert value not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660])
def test_a_key_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    file = key_file(tmp_path, ALICE_LINE, mode=mode)
    with pytest.raises(ConfigError, match="is open to others: chmod 600"):
        KeyRing.load(file, {})
    with pytest.raises(ConfigError, match="is open to others: chmod 600"):
        append_key(file, BOB_LINE)


@pytest.mark.parametrize(
    "line",
    [ALICE, "alice", "alice:sha256:12", f"a b{ALICE_LINE[5:]}", ":::"],
    ids=["a key", "a name", "a short hash", "a name with a space", "colons"],
)
def test_a_line_that_is_none_is_named_by_number_and_not_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="line 2: not owner:sha256:") as caught:
        KeyRing.load(key_file(tmp_path, BOB_LINE, line), {})
    assert ALICE not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_keys_does_not_let_everybody_in(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no key"):
        KeyRing.load(key_file(tmp_path, "# none yet"), {})


def test_a_missing_file_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        KeyRing.load(tmp_path / "none", {})
    file = key_file(tmp_path)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not text"):
        KeyRing.load(file, {})


@pytest.mark.parametrize("owner", ["", "a b", "a:b", "a\nb", "é", "x" * 65])
def test_an_owners_name_that_is_none_is_refused(owner: str) -> None:
    with pytest.raises(ConfigError, match="is no name"):
        new_key(owner)


def test_a_line_is_added_to_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "new"
    append_key(file, ALICE_LINE)
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(ALICE_LINE)  # somebody's editor left the last line unfinished
    append_key(file, BOB_LINE)
    assert file.read_text() == f"{ALICE_LINE}\n{BOB_LINE}\n"
    ring = KeyRing.load(file, {})
    assert ring is not None
    assert [ring.owner(key.encode()) for key in (ALICE, BOB)] == ["alice", "bob"]
