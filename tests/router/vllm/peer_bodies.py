"""Requests and answers of the strict peers, for both of vLLM's token endpoints."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

MODEL: Final = "demo"

COMPLETION_FIELDS: Final = frozenset(
    {
        "model",
        "prompt",
        "echo",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "n",
        "presence_penalty",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "user",
        "top_k",
        "min_p",
        "repetition_penalty",
        "stop_token_ids",
        "include_stop_str_in_output",
        "ignore_eos",
        "min_tokens",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "allowed_token_ids",
        "prompt_logprobs",
        "bad_words",
        "add_special_tokens",
        "response_format",
        "structured_outputs",
        "priority",
        "request_id",
        "return_tokens_as_token_ids",
        "return_token_ids",
        "cache_salt",
        "kv_transfer_params",
        "vllm_xargs",
    }
)
GENERATE_FIELDS: Final = frozenset(
    {
        "request_id",
        "token_ids",
        "features",
        "sampling_params",
        "model",
        "return_token_ids",
        "output_mode",
        "stream",
        "stream_options",
        "cache_salt",
        "priority",
        "reasoning_ended",
        "kv_transfer_params",
    }
)


class Violation(Exception):
    """What a real instance would have crashed on, hung on, ignored or read wrongly."""


@dataclass(frozen=True)
class Seen:
    """One generation request, whichever endpoint it came to."""

    path: str
    request_id: str
    headers: dict[str, str]
    body: dict[str, Any]
    prompt: list[int]
    max_tokens: int
    stream: bool
    params: dict[str, Any] | None

    @property
    def internal_id(self) -> str:
        """The id that the engine gives it: random at the end."""
        if self.path == "/v1/completions":
            return f"cmpl-{self.request_id}-0-0a1b2c3d"
        return f"generate-tokens-{self.request_id}-0a1b2c3d"


def token_at(index: int) -> int:
    """The output token at a position, whoever answers."""
    return 1000 + index


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)


async def read_request(request: web.Request, part: str) -> Seen:
    """What every leg must be like. Raises Violation."""
    ids = request.headers.getall("X-Request-Id", [])
    require(len(ids) == 1 and ids[0] != "", f"{len(ids)} X-Request-Id headers")
    require(request.content_type == "application/json", "not application/json")
    body = await request.json()
    completion = request.path == "/v1/completions"
    known = COMPLETION_FIELDS if completion else GENERATE_FIELDS
    require(body.keys() <= known, f"unknown fields {sorted(body.keys() - known)}")
    sampling = body if completion else body.get("sampling_params")
    require(isinstance(sampling, dict), "no sampling_params")
    require(isinstance(sampling.get("max_tokens"), int), "no max_tokens")
    params = body.get("kv_transfer_params")
    require("kv_transfer_params" not in body or isinstance(params, dict), "params are not a dict")
    seen = Seen(
        request.path,
        ids[0],
        dict(request.headers),
        body,
        _prompt(body.get("prompt" if completion else "token_ids")),
        sampling["max_tokens"],
        bool(body.get("stream")),
        params,
    )
    _fits_part(seen, sampling, part)
    return seen


def _prompt(tokens: object) -> list[int]:
    require(isinstance(tokens, list) and tokens != [], "the prompt is not a list of token ids")
    assert isinstance(tokens, list)
    require(all(type(t) is int and t >= 0 for t in tokens), "the prompt is not token ids")
    return tokens


def _fits_part(seen: Seen, sampling: dict[str, Any], part: str) -> None:
    require(sampling.get("n", 1) == 1, "n is not 1")
    require(seen.max_tokens >= 1, "max_tokens below 1")
    if part == "prefill":
        require(not seen.stream, "prefill is asked to stream: its params would be lost")
        require("stream_options" not in seen.body, "stream_options without stream")
        require(seen.max_tokens == 1, f"prefill is asked for {seen.max_tokens} tokens")
        require((sampling.get("min_tokens") or 0) <= 1, "min_tokens above max_tokens")
    elif seen.path == "/v1/completions":
        require(seen.body.get("return_token_ids") is True, "decode's token ids are not asked for")


def answer(seen: Seen, tokens: Sequence[int], returned: dict[str, Any] | None) -> dict[str, Any]:
    """The whole answer as JSON."""
    return _frame(seen, [_choice(seen, tokens, "length", first=True)]) | {
        "usage": _usage(seen, len(tokens)),
        "kv_transfer_params": returned,
    }


def chunks(seen: Seen, tokens: Sequence[int]) -> Iterator[bytes]:
    """The answer as events, one token each, then usage when asked for, then the end."""
    for index, token in enumerate(tokens):
        finish = "length" if index == len(tokens) - 1 else None
        yield _event(_frame(seen, [_choice(seen, [token], finish, first=index == 0)]))
    if (seen.body.get("stream_options") or {}).get("include_usage"):
        yield _event(_frame(seen, []) | {"usage": _usage(seen, len(tokens))})
    yield b"data: [DONE]\n\n"


def _frame(seen: Seen, choices: list[dict[str, Any]]) -> dict[str, Any]:
    frame: dict[str, Any] = {"model": MODEL, "created": 1, "choices": choices}
    if seen.path == "/v1/completions":
        return frame | {"id": f"cmpl-{seen.request_id}", "object": "text_completion"}
    prompt = seen.prompt if seen.body.get("return_token_ids") else None
    name = f"generate-tokens-{seen.request_id}"
    return frame | {"request_id": name, "output_mode": "tokens", "prompt_token_ids": prompt}


def _choice(
    seen: Seen, tokens: Sequence[int], finish: str | None, *, first: bool
) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "stop_reason": None, "logprobs": None}
    if seen.path != "/v1/completions":
        return choice | {"token_ids": list(tokens)}
    asked = seen.body.get("return_token_ids") is True
    return choice | {
        "text": "x" * len(tokens),
        "token_ids": list(tokens) if asked else None,
        "prompt_token_ids": seen.prompt if asked and first else None,
    }


def _usage(seen: Seen, tokens: int) -> dict[str, int]:
    prompt = len(seen.prompt)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
    }


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"
