"""Token ids in, token ids out, as JSON: the values that vLLM's scale-out services exchange.

Names and meanings are those of vLLM 0.32 (``entrypoints/scale_out/token_in_token_out/protocol.py``)
as far as text needs them. ``/render`` gives a GenerateBody, ``POST /inference/v1/generate`` takes
one and answers with a GenerateAnswer or a stream of GenerateChunks, ``/derender`` takes those.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

_INT32_MAX: Final = 2**31 - 1

TokenId = Annotated[int, msgspec.Meta(ge=0, le=_INT32_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=_INT32_MAX)]
TokenIds = tuple[TokenId, ...]
OutputMode = Literal["tokens"]
"""The other mode, ``text``, is detokenised already."""


class StructuredOutputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the answer must conform to: exactly one of these."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """``sampling_params``. Defaults are vLLM's; what has its default may be left out.

    ``max_tokens`` None lets the server take all the room there is. ``stop`` are strings; a server
    without a tokenizer cannot look for them, ``/derender`` can.
    """

    max_tokens: int | None = None
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: str | tuple[str, ...] | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: dict[int, float] | None = None
    structured_outputs: StructuredOutputs | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """Which token counts a stream tells: at its end, and with every chunk."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class ReasoningParserKwargs(msgspec.Struct, frozen=True):
    """``chat_template_kwargs`` are those the prompt was rendered with."""

    chat_template_kwargs: dict[str, Any] = {}


class GenerateBody(msgspec.Struct, frozen=True):
    """The body of POST /inference/v1/generate.

    ``reasoning_ended`` says whether a block of reasoning is over before the first token, None
    where nobody knows. ``features`` and ``content_parts`` belong to multimodal prompts,
    ``kv_transfer_params`` and ``ec_transfer_params`` to whoever routes the request.
    """

    request_id: str
    token_ids: Annotated[TokenIds, msgspec.Meta(min_length=1)]
    sampling_params: Sampling
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: ReasoningParserKwargs | None = None
    cache_salt: str | None = None
    priority: int = 0
    output_mode: str = "tokens"
    token_offsets: Any = None
    features: Any = None
    content_parts: Any = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None


class Logprob(msgspec.Struct, frozen=True):
    """A token with its log-probability (natural) and its place among all, from 1."""

    token_id: TokenId
    logprob: float
    rank: int | None = None


class PositionLogprobs(msgspec.Struct, frozen=True):
    """The token at one position of the answer, and the candidates for it."""

    token_id: TokenId
    logprob: float
    rank: int | None = None
    top_logprobs: tuple[Logprob, ...] = ()


class Logprobs(msgspec.Struct, frozen=True):
    """One entry a token."""

    content: tuple[PositionLogprobs, ...] | None = None


class AnswerChoice(msgspec.Struct, frozen=True):
    """One whole answer. ``token_ids`` has the token that ended it; ``stop_reason`` names the stop
    token id or stop string, None for end-of-sequence."""

    index: Count
    finish_reason: str | None = "stop"
    stop_reason: int | str | None = None
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    """New tokens of one answer; ``finish_reason`` is set on its last chunk."""

    index: Count
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: TokenIds | None = None
    logprobs: Logprobs | None = None


class PromptDetails(msgspec.Struct, frozen=True):
    """``cached_tokens`` of the prompt did not have to be computed."""

    cached_tokens: Count | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts of a request."""

    prompt_tokens: Count | None = 0
    completion_tokens: Count | None = 0
    total_tokens: Count | None = 0
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int | None:
        details = self.prompt_tokens_details
        return None if details is None else details.cached_tokens


class GenerateAnswer(msgspec.Struct, frozen=True):
    """The whole answer to a GenerateBody: one choice for each of its ``n``.

    ``prompt_logprobs`` has an entry a prompt token, None for the first. What only passes through
    (``metrics``, ``kv_transfer_params``) is kept as it came.
    """

    choices: tuple[AnswerChoice, ...]
    request_id: str | None = None
    output_mode: OutputMode = "tokens"
    model: str | None = None
    created: int | None = None
    usage: Usage | None = None
    prompt_logprobs: tuple[dict[str, Any] | None, ...] | None = None
    prompt_token_ids: TokenIds | None = None
    metrics: Any = None
    kv_transfer_params: dict[str, Any] | None = None


class GenerateChunk(msgspec.Struct, frozen=True):
    """One event of a streamed answer. The last may have no choice but usage."""

    choices: tuple[ChunkChoice, ...]
    request_id: str | None = None
    output_mode: OutputMode = "tokens"
    usage: Usage | None = None
    prompt_token_ids: TokenIds | None = None
    metrics: Any = None


def logprob_pairs(candidates: Sequence[Logprob]) -> tuple[tuple[int, float], ...]:
    """``(token id, log-probability)``, in the order given."""
    return tuple([(each.token_id, each.logprob) for each in candidates])
