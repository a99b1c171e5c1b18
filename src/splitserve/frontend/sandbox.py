"""Where a chat template runs: the filters and globals that transformers gives it, and no way out.

Settings, filters and globals follow transformers' ``apply_chat_template`` (5.x), whose templates
these are. A template comes with the model, so it is treated as foreign code.
"""

import json
from collections.abc import Sized
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_MAX_REPEAT: Final = 1_000_000


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


def environment() -> ImmutableSandboxedEnvironment:
    made = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    made.globals["namespace"] = _PublicNamespace
    return made


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
