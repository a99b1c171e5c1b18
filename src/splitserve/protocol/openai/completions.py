"""The body of POST /v1/completions."""

from typing import Annotated

from pydantic import Field

from splitserve.protocol.openai.fields import Count, Prompts, Unsupported
from splitserve.protocol.openai.sampling import LogprobCount, SamplingFields


class CompletionRequest(SamplingFields):
    """``prompts`` (``prompt`` on the wire) holds one entry a prompt, each text or token ids."""

    prompts: Prompts = Field(alias="prompt")
    logprobs: LogprobCount | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None
    best_of: Annotated[Count, Field(le=128)] | None = None

    prompt_embeds: Unsupported = None
    suffix: Unsupported = None
