"""A request as vLLM's JSON, for either of its endpoints that take token ids. Pure.

Every sampling field is written out: what is left out would be filled in from the model's own
``generation_config``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from splitserve.ids import HandoffId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams, StructuredOutputs
from splitserve.router.workers.vllm.dialects.base import Leg, Params

GENERATE: Final = "/inference/v1/generate"
COMPLETIONS: Final = "/v1/completions"

REQUEST_ID: Final = "X-Request-Id"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an instance takes token ids, and what it must be told with each request.

    ``path`` is GENERATE or COMPLETIONS; ``model`` the name it serves; ``priorities`` whether it
    knows them; ``max_model_len`` how long prompt and answer may be together.
    """

    path: str
    model: str
    max_model_len: int
    priorities: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One HTTP request: ``prompt`` and limits stand in for the GenerateRequest's own."""

    prompt: tuple[int, ...]
    max_tokens: int
    min_tokens: int
    stream: bool
    params: Params | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def whole(request: GenerateRequest, emitted: tuple[int, ...] = ()) -> Asked:
    """All of the answer that comes after ``emitted``."""
    return Asked(
        prompt=request.token_ids + emitted,
        max_tokens=request.sampling.max_tokens - len(emitted),
        min_tokens=max(0, request.sampling.min_tokens - len(emitted)),
        stream=True,
        headers={REQUEST_ID: request.request_id},
    )


def prefill(request: GenerateRequest, handoff: HandoffId, leg: Leg) -> Asked:
    """The prompt and one token. ``min_tokens`` stays 1 where it was more: a stop token is no first
    token then either."""
    return Asked(
        prompt=request.token_ids,
        max_tokens=1,
        min_tokens=min(1, request.sampling.min_tokens),
        stream=False,
        params=leg.params,
        headers={REQUEST_ID: handoff, **leg.headers},
    )


def decode(request: GenerateRequest, handoff: HandoffId, leg: Leg, *, stream: bool = True) -> Asked:
    """The same prompt again: the first token is drawn anew, from KV that prefill computed."""
    sampling = request.sampling
    return Asked(
        prompt=request.token_ids,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        stream=stream,
        params=leg.params,
        headers={REQUEST_ID: handoff, **leg.headers},
    )


def replay(request: GenerateRequest, handoff: HandoffId, first: int) -> Asked:
    """All that comes after ``first``, without a handoff, at the instance that decodes."""
    return replace(whole(request, (first,)), headers={REQUEST_ID: f"{handoff}-replay"})


def release(request: GenerateRequest, handoff: HandoffId, params: Params) -> Asked:
    """The shortest request that names blocks to be let go. One token of the prompt needs one block
    of them, and fills none, so that no prefix cache remembers what it read."""
    return Asked(
        prompt=request.token_ids[:1],
        max_tokens=1,
        min_tokens=0,
        stream=False,
        params=params,
        headers={REQUEST_ID: f"{handoff}-release"},
    )


def encode(endpoint: Endpoint, request: GenerateRequest, asked: Asked) -> bytes:
    """The body, as JSON."""
    build = _generate if endpoint.path == GENERATE else _completion
    body = build(endpoint, request, asked)
    if asked.params is not None:
        body["kv_transfer_params"] = asked.params
    if request.cache_salt:
        body["cache_salt"] = request.cache_salt
    if endpoint.priorities and request.priority:
        body["priority"] = request.priority
    return msgspec.json.encode(body)


def _generate(endpoint: Endpoint, request: GenerateRequest, asked: Asked) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": endpoint.model,
        "token_ids": asked.prompt,
        "stream": asked.stream,
        "sampling_params": {**_sampling(endpoint, request, asked), "detokenize": False},
    }
    if asked.stream:
        body["stream_options"] = {"include_usage": True}
    structured = request.sampling.structured_outputs
    if structured is not None:
        body["reasoning_ended"] = _reasoning_ended(structured)
    return body


def _completion(endpoint: Endpoint, request: GenerateRequest, asked: Asked) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": endpoint.model,
        "prompt": asked.prompt,
        "stream": asked.stream,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        **_sampling(endpoint, request, asked),
    }
    if asked.stream:
        body["stream_options"] = {"include_usage": True}
    return body


def _sampling(endpoint: Endpoint, request: GenerateRequest, asked: Asked) -> dict[str, Any]:
    sampling = request.sampling
    room = max(1, endpoint.max_model_len - len(asked.prompt))
    max_tokens = min(asked.max_tokens, room)
    fields: dict[str, Any] = {
        "max_tokens": max_tokens,
        "min_tokens": min(asked.min_tokens, max_tokens),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "seed": sampling.seed,
        "stop_token_ids": sampling.stop_token_ids,
        "ignore_eos": sampling.ignore_eos,
    }
    return fields | _optional(sampling)


def _optional(sampling: SamplingParams) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if sampling.logprobs is not None:
        fields["logprobs"] = sampling.logprobs
    if sampling.logit_bias:
        fields["logit_bias"] = sampling.logit_bias
    if sampling.structured_outputs is not None:
        fields["structured_outputs"] = _structured(sampling.structured_outputs)
    return fields


def _structured(outputs: StructuredOutputs) -> dict[str, Any]:
    """Only the constraint: when it begins is for vLLM's own reasoning parser to say."""
    kinds = ("json", "regex", "choice", "grammar", "structural_tag")
    given = {kind: value for kind in kinds if (value := getattr(outputs, kind)) is not None}
    return {"json_object": True} if outputs.json_object else given


def _reasoning_ended(outputs: StructuredOutputs) -> bool | None:
    """None lets vLLM look at the prompt."""
    if not outputs.think_end:
        return True
    return False if outputs.think_open else None
