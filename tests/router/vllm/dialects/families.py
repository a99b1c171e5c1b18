"""Every connector family with its strict rules, and a straight line through one handoff."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from router.vllm.peer_rules import (
    LMCacheRules,
    MooncakeRules,
    MoriioRules,
    NoWords,
    P2PRules,
    PullRules,
    PushRules,
)
from router.vllm.strict_peers import Rules, StrictPair, strict_pair
from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects.base import Dialect, Leg, Params
from splitserve.router.workers.vllm.dialects.registry import dialect_for

HANDOFF: Final = HandoffId("cmpl-a1b2c3#0")
PROMPT: Final = list(range(1, 36))
ASKED: Final = 4

FAMILIES: Final[dict[str, Callable[[], Rules]]] = {
    "nixl_pull": PullRules,
    "nixl_pull_023": lambda: PullRules(old=True),
    "nixl_push": PushRules,
    "moriio_read": lambda: MoriioRules(read=True),
    "moriio_read_023": lambda: MoriioRules(read=True, old=True),
    "moriio_write": lambda: MoriioRules(read=False),
    "lmcache": lambda: LMCacheRules(receiver=False),
    "lmcache_receiver": lambda: LMCacheRules(receiver=True),
    "lmcache_mp": lambda: NoWords({"kv_connector": "LMCacheMPConnector"}),
    "mooncake_store": lambda: NoWords({"kv_connector": "MooncakeStoreConnector"}),
    "offloading": lambda: NoWords({"kv_connector": "OffloadingConnector"}),
    "offloading_p2p": P2PRules,
    "flexkv": lambda: NoWords({"kv_connector": "FlexKVConnectorV1"}),
    "example": lambda: NoWords({"kv_connector": "ExampleConnector"}),
    "multi": lambda: PullRules(
        {
            "kv_connector": "MultiConnector",
            "kv_connector_extra_config": {
                "connectors": [
                    {"kv_connector": "LMCacheMPConnector"},
                    {"kv_connector": "NixlConnector"},
                ]
            },
        }
    ),
    "mooncake": lambda: MooncakeRules("http://10.0.0.1:8998"),
}


class Line:
    """The plainest client there can be, over one pair."""

    def __init__(self, pair: StrictPair, http: httpx.AsyncClient, path: str) -> None:
        self.pair = pair
        self.dialect: Dialect = dialect_for(pair.config)
        self.http = http
        self.path = path

    def prefill_leg(self, handoff: HandoffId = HANDOFF) -> Leg:
        return self.dialect.prefill(handoff, self.pair.prefill_instance, self.pair.decode_instance)

    def decode_leg(self, returned: Params | None, handoff: HandoffId = HANDOFF) -> Leg:
        return self.dialect.decode(
            handoff, self.pair.prefill_instance, self.pair.decode_instance, returned
        )

    async def ask_prefill(self, leg: Leg, **changes: Any) -> httpx.Response:
        body = self.body(leg, 1) | changes
        return await self.http.post(
            self.pair.prefill.url + self.path, json=body, headers=headers(leg)
        )

    async def ask_decode(self, leg: Leg, **changes: Any) -> httpx.Response:
        body = self.body(leg, ASKED) | {"stream": True} | changes
        return await self.http.post(
            self.pair.decode.url + self.path, json=body, headers=headers(leg)
        )

    def body(self, leg: Leg, max_tokens: int) -> dict[str, Any]:
        params = {} if leg.params is None else {"kv_transfer_params": leg.params}
        if self.path == "/v1/completions":
            body = {"model": "demo", "prompt": PROMPT, "max_tokens": max_tokens}
            return body | {"return_token_ids": True} | params
        return {"token_ids": PROMPT, "sampling_params": {"max_tokens": max_tokens}} | params


def headers(leg: Leg, handoff: HandoffId = HANDOFF) -> dict[str, str]:
    return {"X-Request-Id": handoff} | dict(leg.headers)


def streamed(response: httpx.Response) -> list[int]:
    """The token ids of an event stream that ended as it should."""
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return [token for choice in choices for token in choice["token_ids"]]


@asynccontextmanager
async def line(
    rules: Rules, path: str = "/v1/completions", *, wrong: bool = False
) -> AsyncIterator[Line]:
    async with (
        strict_pair(rules, max_tokens=ASKED, expect_violations=wrong) as pair,
        httpx.AsyncClient() as http,
    ):
        yield Line(pair, http, path)
