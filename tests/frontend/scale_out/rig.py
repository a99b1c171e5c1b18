"""A text tier to call, bodies to call it with, and its answers joined as a client joins them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from frontend.samples import HERMES, byte_level_inner, served
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.derender.parsers.detect import ParserNames
from splitserve.frontend.model import ServedModel
from splitserve.frontend.scale_out.app import create_text_app
from splitserve.frontend.scale_out.stream_state import StateSeal
from splitserve.frontend.scale_out.tier import TextTier
from splitserve.frontend.tokenizer import Tokenizer

KEY = b"k" * 32
PARTS = {"tokenizer": "t", "template": "x"}
TOKENIZER = Tokenizer(byte_level_inner(), bos_token="<s>")
END = TOKENIZER.inner.token_to_id("<|im_end|>")
CHAT = "/v1/chat/completions/derender"
COMPLETION = "/v1/completions/derender"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def plain_model() -> ServedModel:
    return served(TOKENIZER)


def parsing_model(*, max_model_len: int = 4096) -> ServedModel:
    """One that thinks in tags and calls tools as Hermes does."""
    return replace(
        served(TOKENIZER, HERMES),
        max_model_len=max_model_len,
        parsers=ParserNames(reasoning="qwen3", tool_calls="hermes"),
    )


@contextmanager
def text_tier(
    model: ServedModel,
    *,
    key: bytes = KEY,
    parts: Mapping[str, str] = PARTS,
    config: FrontendConfig | None = None,
) -> Iterator[TextTier]:
    with ThreadPoolExecutor(1) as threads:
        yield TextTier(
            model=model,
            config=config or FrontendConfig(),
            fingerprint=parts,
            end_ids=frozenset((END,)),
            seal=StateSeal(key, parts),
            threads=threads,
        )


def app_of(tier: TextTier) -> ASGIApp:
    return create_text_app(tier, CollectorRegistry())


@dataclass
class Caller:
    """``headers`` go with every call."""

    app: ASGIApp
    headers: dict[str, str] = field(default_factory=dict)

    async def post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://text"
        ) as client:
            return await client.post(path, content=raw, headers={**self.headers, **(headers or {})})

    async def get(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://text"
        ) as client:
            return await client.get(path)

    async def good(self, path: str, body: Any) -> Any:
        answer = await self.post(path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refusal(self, path: str, body: Any, status: int = 400) -> dict[str, Any]:
        answer = await self.post(path, body)
        assert answer.status_code == status, answer.text
        return dict(answer.json()["error"])


def ids_of(text: str, *, end: bool = True) -> list[int]:
    """Tokens of an answer, with the one that ends it."""
    return [*TOKENIZER.encode_prompt(text), *((END,) if end else ())]


def choice(ids: Sequence[int], index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "token_ids": list(ids), "finish_reason": "stop", **more}


def response(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"request_id": "generate-tokens-7", "choices": list(choices), **more}


def logprobs_of(ids: Sequence[int]) -> list[dict[str, Any]]:
    """One entry a token, each with candidates of its own."""
    return [
        {
            "token_id": token,
            "logprob": -0.25 * place,
            "rank": 1,
            "top_logprobs": [
                {"token_id": token, "logprob": -0.25 * place, "rank": 1},
                {"token_id": 10 + place, "logprob": -5.0 - place, "rank": 2},
            ],
        }
        for place, token in enumerate(ids)
    ]


def pieces(
    ids: Sequence[int],
    sizes: Iterable[int],
    *,
    index: int = 0,
    finish: str | None = "stop",
    stop_reason: int | str | None = None,
    logprobs: Sequence[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """``ids`` as a generate stream's chunks of ``sizes``, then of one token."""
    found: list[dict[str, Any]] = []
    widths, begin = iter(sizes), 0
    while begin < len(ids):
        end = min(begin + next(widths, 1), len(ids))
        last = end == len(ids)
        found.append(
            {
                "request_id": "generate-tokens-7",
                "choices": [
                    {
                        "index": index,
                        "token_ids": list(ids[begin:end]),
                        "finish_reason": finish if last else None,
                        "stop_reason": stop_reason if last else None,
                        "logprobs": None
                        if logprobs is None
                        else {"content": list(logprobs[begin:end])},
                    }
                ],
            }
        )
        begin = end
    return found


@dataclass
class Joined:
    """One choice, as a client has it at the end."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    call_ids: list[str] = field(default_factory=list)
    finish: str | None = None
    stop_reason: int | str | None = None
    logprobs: list[Any] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    roles: int = 0

    def told(self) -> tuple[Any, ...]:
        """What must not depend on how the answer was asked for; ids of calls may."""
        return (
            self.content,
            self.reasoning,
            self.calls,
            self.finish,
            self.stop_reason,
            self.logprobs,
            self.token_ids,
        )


def join_whole(one: dict[str, Any]) -> Joined:
    """A choice of a whole chat answer."""
    message, found = one["message"], Joined()
    found.content = message["content"] or ""
    found.reasoning = message.get("reasoning") or ""
    for call in message.get("tool_calls") or ():
        found.calls.append((call["function"]["name"], call["function"]["arguments"]))
        found.call_ids.append(call["id"])
    found.finish, found.stop_reason = one["finish_reason"], one["stop_reason"]
    found.logprobs = (one["logprobs"] or {}).get("content") or []
    found.token_ids = one.get("token_ids") or []
    return found


def join_chunks(chunks: Iterable[dict[str, Any]], index: int = 0) -> Joined:
    """A choice of a streamed chat answer."""
    found = Joined()
    for chunk in chunks:
        for one in chunk["choices"]:
            if one["index"] == index:
                _join(found, one)
    return found


def _join(found: Joined, one: dict[str, Any]) -> None:
    assert found.finish is None, "a chunk after the finish"
    delta = one["delta"]
    found.roles += "role" in delta
    found.content += delta.get("content") or ""
    found.reasoning += delta.get("reasoning") or ""
    for call in delta.get("tool_calls") or ():
        function = call["function"]
        if call["index"] == len(found.calls):
            found.calls.append((function["name"], ""))
            found.call_ids.append(call["id"])
        name, before = found.calls[call["index"]]
        found.calls[call["index"]] = name, before + function["arguments"]
    found.finish = one["finish_reason"]
    found.stop_reason = one.get("stop_reason")
    found.logprobs += (one["logprobs"] or {}).get("content") or []
    found.token_ids += one.get("token_ids") or []


async def call_by_call(
    caller: Caller, path: str, chunks: Iterable[dict[str, Any]], **first: Any
) -> list[dict[str, Any]]:
    """The chunks of a streamed derender; ``first`` goes with the first call only."""
    state, found, more = None, [], first
    for chunk in chunks:
        body = {"stream": True, "generate_chunk": chunk, "stream_state": state, **more}
        answer = await caller.good(path, body)
        found.append(answer["chunk"])
        state, more = answer["stream_state"], {}
    return found
