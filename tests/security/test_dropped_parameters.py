"""Where KV comes from and goes to is the router's business: clients are not asked."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from security.served import Served, serving
from splitserve.protocol.codec import encode
from splitserve.protocol.control import Submit

CANARY = "canary-7f3a"
TRANSFER: dict[str, Any] = {
    "do_remote_prefill": True,
    "remote_host": CANARY,
    "remote_port": 4242,
    "remote_block_ids": [1, 2, 3],
    "remote_engine_id": CANARY,
}
HEADERS = [
    ("x-prefiller-host-port", f"{CANARY}:4242"),
    ("X-Prefiller-Host-Port", f"127.0.0.1:4242@{CANARY}"),
    ("x-prefiller-hosts-ports", f"{CANARY}:1,{CANARY}:2"),
    ("x-decoder-host-port", f"{CANARY}:4242"),
    ("x-encoder-hosts-ports", f"{CANARY}:4242"),
    ("x-data-parallel-host-port", f"{CANARY}:4242"),
    ("x-kv-transfer-params", json.dumps(TRANSFER)),
    ("x-splitserve-owner", CANARY),
    ("forwarded", f"host={CANARY}"),
    ("x-forwarded-host", CANARY),
]
BODY_FIELDS: dict[str, Any] = {
    "kv_transfer_params": TRANSFER,
    "ec_transfer_params": TRANSFER,
    "extra_body": {"kv_transfer_params": TRANSFER},
    "vllm_xargs": {"kv_transfer_params": CANARY},
    "owner": CANARY,
    "handoff": CANARY,
    "request_id": CANARY,
    "worker": CANARY,
    "writer": CANARY,
    "emitted": [1, 2, 3],
    "resume_from": 3,
}
ASKED = {
    "/v1/completions": {"prompt": "x", "seed": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "seed": 1},
    "/v1/responses": {"input": "x", "seed": 1},
}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with serving() as found:
        yield found


def reaches_workers(gateway: Served) -> bytes:
    """The frame that the last request would be sent in, but for its id."""
    request = gateway.generator.requests[-1]
    return encode(Submit(msgspec.structs.replace(request, request_id="r")))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", sorted(ASKED))
def test_neither_headers_nor_fields_of_a_body_choose_a_worker(gateway: Served, path: str) -> None:
    assert httpx.post(gateway.url + path, json=ASKED[path]).status_code == 200
    plain = reaches_workers(gateway)
    answer = httpx.post(gateway.url + path, json={**ASKED[path], **BODY_FIELDS}, headers=HEADERS)
    assert answer.status_code == 200
    assert reaches_workers(gateway) == plain
    assert CANARY.encode() not in plain


@pytest.mark.parametrize("field", ["kv_transfer_params", "ec_transfer_params"])
def test_where_an_engine_would_take_them_they_are_refused_by_name(
    gateway: Served, field: str
) -> None:
    before = len(gateway.generator.requests)
    body = {"request_id": "r", "token_ids": [1], "sampling_params": {}, field: TRANSFER}
    answer = httpx.post(gateway.url + "/inference/v1/generate", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert len(gateway.generator.requests) == before


def test_a_client_cannot_name_another_owner(gateway: Served) -> None:
    httpx.post(gateway.url + "/v1/completions", json={**ASKED["/v1/completions"], "owner": "bob"})
    assert gateway.generator.requests[-1].owner == ""
