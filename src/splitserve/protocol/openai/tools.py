"""Tools a client offers, and how the model may use them."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field, PlainValidator

from splitserve.protocol.openai.body import Body
from splitserve.protocol.openai.fields import wrong

MAX_TOOLS: Final = 128
_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def _tool_name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise wrong("must have 1 to 64 letters, digits, '_', '-' or '.'")
    return value


ToolName = Annotated[str, PlainValidator(_tool_name)]


class FunctionTool(Body):
    """``parameters`` is a JSON schema; without one the function takes no arguments."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def shown(self) -> dict[str, Any]:
        """As templates print it: neither what the client left out nor what only concerns us."""
        shown: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            shown["description"] = self.description
        if self.parameters is not None:
            shown["parameters"] = self.parameters
        return shown


class Tool(Body):
    """One entry of ``tools``."""

    type: Literal["function"]
    function: FunctionTool

    def shown(self) -> dict[str, Any]:
        """As templates print it."""
        return {"type": "function", "function": self.function.shown()}


def distinct_names(names: Iterable[str]) -> None:
    """Raises what a pydantic validator may raise."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise wrong(f"two tools are named '{name}'")
        seen.add(name)


def _distinct(tools: list[Tool]) -> list[Tool]:
    distinct_names(tool.function.name for tool in tools)
    return tools


Tools = Annotated[
    list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True), AfterValidator(_distinct)
]

Choice = Literal["none", "auto", "required", "named"]


class ToolChoice(NamedTuple):
    """``name`` is the only tool that may be called, with mode ``named``."""

    mode: Choice
    name: str | None = None


def _tool_choice(value: Any) -> ToolChoice:
    """The form of chat, ``{"type": "function", "function": {"name": ...}}``, and that of the
    Responses API, ``{"type": "function", "name": ...}``."""
    match value:
        case "none" | "auto" | "required":
            return ToolChoice(value)
        case {"type": "function", "function": {"name": str(name)}} | {
            "type": "function",
            "name": str(name),
        }:
            return ToolChoice("named", name)
    raise wrong('must be "none", "auto", "required" or an object that names a function')


ToolChoiceField = Annotated[ToolChoice, PlainValidator(_tool_choice)]
