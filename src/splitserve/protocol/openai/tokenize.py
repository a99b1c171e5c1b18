"""The bodies of vLLM's POST /tokenize and /detokenize."""

from typing import Annotated, Final

from pydantic import Field

from splitserve.protocol.openai.body import Body
from splitserve.protocol.openai.chat import ChatFields
from splitserve.protocol.openai.fields import TokenId

MAX_TOKENS: Final = 1_000_000


class TokenizeText(Body):
    """A plain prompt. None means not given."""

    prompt: Annotated[str, Field(min_length=1)]
    model: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeChat(ChatFields):
    """A chat."""

    model: str | None = None
    return_token_strs: bool | None = None


class Detokenize(Body):
    """Token ids, to be text again."""

    tokens: Annotated[list[TokenId], Field(max_length=MAX_TOKENS, fail_fast=True)]
    model: str | None = None
