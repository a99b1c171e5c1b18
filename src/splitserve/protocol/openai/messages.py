"""The messages of a chat."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo
from pydantic_core import from_json

from splitserve.protocol.openai.body import Body
from splitserve.protocol.openai.fields import Unsupported, wrong

# Checking one of them takes microseconds, during which nothing else runs.
MAX_MESSAGES: Final = 8192
MAX_PARTS: Final = 1024
MAX_CALLS: Final = 1024
MAX_CALLED_NAME: Final = 256

_KINDS: Final = {"text": "text", "refusal": "refusal"}

Role = Literal["system", "developer", "user", "assistant", "tool"]


def _supported_role(value: Any) -> Any:
    if value == "function":
        raise wrong("role 'function' is obsolete: use 'tool'")
    return value


def _content(value: Any, info: ValidationInfo) -> str | tuple[str, ...] | None:
    """Text, the texts of a list of text parts, or None where the role allows it."""
    if value is None:
        if info.data.get("role", "assistant") == "assistant":
            return None
        raise wrong("is required for this role")
    return text_or_parts(value, _KINDS)


def text_or_parts(value: Any, kinds: Mapping[str, str]) -> str | tuple[str, ...]:
    """A string, or the texts of a list of parts. ``kinds`` maps the types a part may have to the
    key that holds its text. Raises what a pydantic validator may raise."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong("must be a string or a list of text parts")
    if len(value) > MAX_PARTS:
        raise wrong(f"must have at most {MAX_PARTS} parts")
    return tuple(_part_text(number, part, kinds) for number, part in enumerate(value))


def _part_text(number: int, part: Any, kinds: Mapping[str, str]) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise wrong(f"part {number} must be an object with a 'type'")
    key = kinds.get(part["type"])
    if key is None:
        supported = " and ".join(f"'{kind}'" for kind in kinds)
        raise wrong(f"part {number} has type '{part['type'][:64]}'; only {supported} are supported")
    if not isinstance(part.get(key), str):
        raise wrong(f"part {number} must have a string '{key}'")
    return str(part[key])


Content = Annotated[str | tuple[str, ...] | None, PlainValidator(_content)]


class Arguments(NamedTuple):
    """Arguments of a call the model once made, as the text that came and the object it is."""

    text: str
    value: dict[str, Any]


def _arguments(value: Any) -> Arguments:
    if not isinstance(value, str):
        raise wrong("must be a string that holds a JSON object")
    if not value.strip():
        return Arguments("{}", {})
    try:
        parsed = from_json(value, allow_inf_nan=False)
    except ValueError:
        raise wrong("must hold a JSON object, and is not valid JSON") from None
    if not isinstance(parsed, dict):
        raise wrong("must hold a JSON object")
    return Arguments(value, parsed)


CalledArguments = Annotated[Arguments, PlainValidator(_arguments)]
CalledName = Annotated[str, Field(min_length=1, max_length=MAX_CALLED_NAME)]


class CalledFunction(Body):
    """What a call of the model's called; the name is the model's word, and no tool's perhaps."""

    name: CalledName
    arguments: CalledArguments


class PastCall(Body):
    """A call the model made in an earlier turn."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Body):
    """One turn. ``content`` as a tuple holds the texts of a list of parts, in order.

    ``reasoning`` and ``reasoning_content`` are two names of what an assistant thought.
    """

    role: Annotated[Role, BeforeValidator(_supported_role)]
    content: Content = Field(default=None, validate_default=True)
    name: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[PastCall], Field(max_length=MAX_CALLS, fail_fast=True)] | None = None
    tool_call_id: str | None = None

    function_call: Unsupported = None


Messages = Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
