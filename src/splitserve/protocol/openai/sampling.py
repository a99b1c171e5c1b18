"""The fields that chat and completion requests have in common. Names are OpenAI's, then vLLM's."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from splitserve.protocol.openai.body import Body
from splitserve.protocol.openai.fields import (
    INT32_MAX,
    INT64_MAX,
    Count,
    LogitBias,
    Penalty,
    StopStrings,
    TokenId,
    Truncation,
    Unsupported,
)
from splitserve.protocol.sampling import MAX_LOGPROBS

MAX_N: Final = 128
MAX_STOP_TOKEN_IDS: Final = 128

LogprobCount = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]


class StreamOptions(Body):
    """``include_usage`` adds one last chunk with the token counts, ``continuous_usage_stats`` (of
    vLLM) the counts so far to every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingFields(Body):
    """What both endpoints accept. None means not given.

    ``truncate_prompt_tokens`` keeps a prompt's last tokens, -1 as many as fit. The fields of
    structured outputs are looked into where the request is rendered. The last group would change
    the answer if it were ignored, so it is refused by name.
    """

    model: str | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=INT32_MAX)] | None = None
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    logit_bias: LogitBias | None = None
    n: Annotated[int, Field(ge=1, le=MAX_N)] | None = None
    seed: Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)] | None = None
    stop: StopStrings | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    priority: Annotated[int, Field(ge=-INT32_MAX, le=INT32_MAX)] | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    return_token_ids: bool | None = None

    truncate_prompt_tokens: Truncation | None = None
    truncation_side: Literal["left"] | None = None

    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    allowed_token_ids: Unsupported = None
    bad_words: Unsupported = None
    prompt_logprobs: Unsupported = None
    use_beam_search: bool | None = None
