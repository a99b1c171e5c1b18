"""The fields that chat and completion requests have in common. Names are OpenAI's, then vLLM's."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from splitserve.protocol.openai.fields import (
    INT32_MAX,
    INT64_MAX,
    Count,
    LogitBias,
    Penalty,
    StopStrings,
    TokenId,
    Unsupported,
)
from splitserve.protocol.sampling import MAX_LOGPROBS

MAX_N: Final = 128
MAX_STOP_TOKEN_IDS: Final = 128

LogprobCount = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]


class Body(BaseModel):
    """Unknown fields are ignored as vLLM does; known ones must have the right JSON type."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )


class StreamOptions(Body):
    """``include_usage`` adds one last chunk with the token counts."""

    include_usage: bool | None = None


class SamplingFields(Body):
    """What both endpoints accept. None means not given.

    The last group would change the answer if it were ignored, so it is refused by name.
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

    allowed_token_ids: Unsupported = None
    bad_words: Unsupported = None
    guided_choice: Unsupported = None
    guided_grammar: Unsupported = None
    guided_json: Unsupported = None
    guided_regex: Unsupported = None
    prompt_logprobs: Unsupported = None
    structured_outputs: Unsupported = None
    truncate_prompt_tokens: Unsupported = None
    response_format: dict[str, Any] | None = None
    use_beam_search: bool | None = None
