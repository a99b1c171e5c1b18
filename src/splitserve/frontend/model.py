"""The one model a frontend serves."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from splitserve.frontend.derender.parsers.detect import ParserNames, detect
from splitserve.frontend.derender.parsers.registry import (
    AUTO,
    NONE,
    reasoning_parser,
    tool_parser,
)
from splitserve.frontend.sealed_template import SealedTemplate
from splitserve.frontend.template import ChatTemplate
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.modelstore.folder import ModelFolder

NO_PARSERS: Final = ParserNames(None, None)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``max_model_len`` is the most tokens of prompt and answer together.

    ``template`` is None for a model without chat, and so is ``prompts``, the same template as
    requests are rendered with. ``created`` is Unix seconds, for /v1/models. ``parsers`` read the
    answers of chats.
    """

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    max_model_len: int
    created: int
    parsers: ParserNames = NO_PARSERS
    prompts: SealedTemplate | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        template = self.template
        prompts = None if template is None else SealedTemplate(template, self.tokenizer)
        # A frozen value's own way to set what follows from the rest.
        object.__setattr__(self, "prompts", prompts)

    @classmethod
    def load(
        cls,
        folder: ModelFolder,
        *,
        name: str | None = None,
        max_model_len: int | None = None,
        tool_call_parser: str = AUTO,
        reasoning_parser: str = AUTO,
    ) -> Self:
        """Reads tokenizer and template. Raises ConfigError when one cannot be used, and for the
        name of a parser there is not; ``auto`` asks the template, ``none`` is no parser.
        """
        special = folder.special_tokens()
        source = folder.chat_template()
        tokenizer = Tokenizer.load(
            folder.tokenizer_path,
            bos_token=special.get("bos_token"),
            add_bos=folder.add_bos_token() is True,
        )
        return cls(
            name=name or folder.served_name,
            tokenizer=tokenizer,
            template=None if source is None else ChatTemplate(source, special),
            max_model_len=max_model_len or folder.max_model_len(),
            created=int(time.time()),
            parsers=_parsers(source, tool_call_parser, reasoning_parser),
        )


def _parsers(source: str | None, tool_calls: str, reasoning: str) -> ParserNames:
    found = NO_PARSERS if source is None else detect(source)
    return ParserNames(
        reasoning=_chosen(reasoning, found.reasoning, reasoning_parser),
        tool_calls=_chosen(tool_calls, found.tool_calls, tool_parser),
    )


def _chosen(asked: str, found: str | None, check: Callable[[str], object]) -> str | None:
    if asked == AUTO:
        return found
    if asked == NONE:
        return None
    check(asked)
    return asked
