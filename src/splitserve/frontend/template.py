"""A model's chat template, run as Hugging Face transformers runs it, in a sandbox."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import jinja2
from jinja2.exceptions import SecurityError

from splitserve.errors import CallerError, ConfigError
from splitserve.frontend.sandbox import environment
from splitserve.frontend.template_habits import Habits, habits_of

MAX_RENDERED_CHARS: Final = 16 * 1024 * 1024
# What an expression of a template can raise on data it did not expect.
_TEMPLATE_FAILURES: Final = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


class ChatTemplate:
    """A compiled template. ``special_tokens`` are texts it may print by their names.

    Raises ConfigError when the template is not valid.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source: Final = source
        self.special_tokens: Final = dict(special_tokens)
        made = environment()
        try:
            self._template = made.from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigError(f"the model's chat template is not valid: {error}") from error
        self._reserved = _RESERVED | made.globals.keys() | special_tokens.keys()

    @cached_property
    def habits(self) -> Habits:
        """Which forms of messages and tools it can print."""
        return habits_of(self.probe)

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        extra: Mapping[str, Any],
        tools: list[dict[str, Any]] | None = None,
        documents: list[dict[str, Any]] | None = None,
    ) -> str:
        """``extra`` are the client's chat_template_kwargs.

        Raises CallerError when they use a reserved name, when the template refuses the messages
        or fails on them, or when it writes more than MAX_RENDERED_CHARS.
        """
        self._refuse_reserved(extra)
        context = {
            **self.special_tokens,
            **extra,
            "messages": messages,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._run(context)
        except (jinja2.TemplateError, *_TEMPLATE_FAILURES) as error:
            raise CallerError(
                f"the model's chat template refused the messages: {_shown(error)}",
                param="messages",
            ) from error

    def probe(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        """As ``render``, of nothing but these and a prompt to answer."""
        return self.render(messages, add_generation_prompt=True, extra={}, tools=tools)

    def _run(self, context: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        size = 0
        for piece in self._template.generate(context):
            size += len(piece)
            if size > MAX_RENDERED_CHARS:
                raise SecurityError("it writes too much text")
            pieces.append(piece)
        return "".join(pieces)

    def _refuse_reserved(self, extra: Mapping[str, Any]) -> None:
        for name in extra:
            if name in self._reserved or name.startswith("_") or not name.isidentifier():
                raise CallerError(
                    f"'chat_template_kwargs' must not set {name[:64]!r}",
                    param="chat_template_kwargs",
                )


# Arguments of the functions that render elsewhere take, beside the names a template relies on.
_RESERVED: Final = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "loop",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "self",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)


def _shown(error: Exception) -> str:
    """A template's own words, or the kind of its failure."""
    if isinstance(error, jinja2.TemplateError):
        return (error.message or type(error).__name__)[:500]
    return type(error).__name__
