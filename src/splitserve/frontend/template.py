"""A model's chat template, run in a sandbox as Hugging Face transformers runs it.

Settings, filters and globals follow transformers' ``apply_chat_template`` (5.x), whose templates
these are. A template comes with the model, so it is treated as foreign code.
"""

import json
from collections.abc import Mapping, Sized
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from splitserve.errors import CallerError, ConfigError

MAX_RENDERED_CHARS: Final = 16 * 1024 * 1024
_MAX_REPEAT: Final = 1_000_000
_PROBE: Final = "splitserve-probe"
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
    """A compiled template. ``takes_text`` and ``takes_parts`` say which forms of a message's
    content it can print: a string, a list of text parts, or both.

    Raises ConfigError when the template is not valid.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = _environment()
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigError(f"the model's chat template is not valid: {error}") from error
        self._special_tokens = dict(special_tokens)
        self._reserved = _RESERVED | environment.globals.keys() | special_tokens.keys()
        self.takes_parts = self._prints([{"type": "text", "text": _PROBE}])
        self.takes_text = self._prints(_PROBE) or not self.takes_parts

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        extra: Mapping[str, Any],
    ) -> str:
        """``extra`` are the client's chat_template_kwargs.

        Raises CallerError when they use a reserved name, when the template refuses the messages
        or fails on them, or when it writes more than MAX_RENDERED_CHARS.
        """
        self._refuse_reserved(extra)
        context = {
            **self._special_tokens,
            **extra,
            "messages": messages,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._run(context)
        except (jinja2.TemplateError, *_TEMPLATE_FAILURES) as error:
            raise CallerError(
                f"the model's chat template refused the messages: {_shown(error)}",
                param="messages",
            ) from error

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

    def _prints(self, content: Any) -> bool:
        message = {"role": "user", "content": content}
        try:
            text = self.render([message], add_generation_prompt=False, extra={})
        except CallerError:
            return False
        return _PROBE in text and "'type'" not in text


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


class _Sandbox(ImmutableSandboxedEnvironment):
    """Also refuses to repeat text or to raise numbers to sizes no prompt has."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        if operator == "**":
            raise SecurityError("'**' is not allowed in a chat template")
        for repeated, times in ((left, right), (right, left)):
            if not isinstance(times, int) or not isinstance(repeated, Sized):
                continue
            if len(repeated) * times > _MAX_REPEAT:
                raise SecurityError("a chat template must not repeat text that often")
        return super().call_binop(context, operator, left, right)


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's text for training; here it changes nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PublicNamespace(Namespace):
    """A namespace without underscored names: those lead to the interpreter's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attrs = dict(*rest, **kwargs)
        for name in attrs:
            _check_public(name)
        Namespace.__init__(self, attrs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


def _check_public(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError("a chat template must not store names that begin with '_'")


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.globals["namespace"] = _PublicNamespace
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML, which would change the prompt.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _shown(error: Exception) -> str:
    """A template's own words, or the kind of its failure."""
    if isinstance(error, jinja2.TemplateError):
        return (error.message or type(error).__name__)[:500]
    return type(error).__name__
