"""What an answer must conform to: from a request's fields to StructuredOutputs.

A client says it in one of three ways: OpenAI's ``response_format``, vLLM's ``structured_outputs``,
or vLLM's older ``guided_*`` fields. Forced tool calls are held to their tools' schemas.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from splitserve.errors import CallerError
from splitserve.protocol.sampling import StructuredOutputs
from splitserve.structured.grammars import check

_NO_ARGUMENTS: Final = {"type": "object", "properties": {}, "additionalProperties": False}


class StructuredFields(Protocol):
    """The fields of a request that are read here; None means not given."""

    @property
    def response_format(self) -> dict[str, Any] | None: ...
    @property
    def structured_outputs(self) -> dict[str, Any] | None: ...
    @property
    def guided_json(self) -> dict[str, Any] | str | None: ...
    @property
    def guided_regex(self) -> str | None: ...
    @property
    def guided_choice(self) -> list[str] | None: ...
    @property
    def guided_grammar(self) -> str | None: ...


class CallableTool(Protocol):
    """``parameters`` is a JSON schema; None takes no arguments."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Thinking:
    """The tokens around a model's reasoning, which no constraint touches. ``open``: the prompt has
    begun it already."""

    begin: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    open: bool = False


NO_THINKING: Final = Thinking()


def resolve_structured(
    fields: StructuredFields, thinking: Thinking = NO_THINKING
) -> StructuredOutputs | None:
    """None where the answer is free. Raises CallerError for a constraint that cannot be served,
    and for more than one."""
    sources: dict[str, Any] = {
        "response_format": fields.response_format,
        "structured_outputs": fields.structured_outputs,
        "guided_json": fields.guided_json,
        "guided_regex": fields.guided_regex,
        "guided_choice": fields.guided_choice,
        "guided_grammar": fields.guided_grammar,
    }
    found = {name: _read(name, value) for name, value in sources.items() if value is not None}
    constraints = {name: each for name, each in found.items() if each is not None}
    if len(constraints) > 1:
        first, second, *_ = constraints
        raise CallerError(f"'{first}' and '{second}' exclude each other", param=second)
    for name, structured in constraints.items():
        return _checked(structured, name, thinking)
    return None


def for_tools(
    tools: Sequence[CallableTool], *, name: str | None, parallel: bool, thinking: Thinking
) -> StructuredOutputs:
    """What a forced call must be: with ``name`` the arguments of that tool, else a JSON array of
    ``{"name", "parameters"}``, of exactly one unless ``parallel``.

    Raises CallerError for a schema that cannot be served.
    """
    if name is not None:
        schema = next(_parameters(tool) for tool in tools if tool.name == name)
    else:
        schema = _calls(tools, parallel)
    return _checked(StructuredOutputs(json=_dump(schema, "tools")), "tools", thinking)


def _checked(structured: StructuredOutputs, param: str, thinking: Thinking) -> StructuredOutputs:
    check(structured, param)
    return msgspec.structs.replace(
        structured,
        think_begin=thinking.begin,
        think_end=thinking.end,
        think_open=thinking.open,
    )


def _read(name: str, value: Any) -> StructuredOutputs | None:
    if name == "response_format":
        return _response_format(value)
    if name == "structured_outputs":
        return _structured_outputs(value)
    return _kind(name.removeprefix("guided_"), value, name)


def _response_format(value: Mapping[str, Any]) -> StructuredOutputs | None:
    param = "response_format"
    match value.get("type"):
        case "text":
            return None
        case "json_object":
            return StructuredOutputs(json_object=True)
        case "json_schema":
            schema = value.get("json_schema")
            if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
                raise _wrong(param, "needs 'json_schema' with a 'schema', both objects")
            return StructuredOutputs(json=_dump(schema["schema"], param))
        case "structural_tag":
            return StructuredOutputs(structural_tag=_dump(dict(value), param))
    raise _wrong(param, "'type' must be text, json_object, json_schema or structural_tag")


def _structured_outputs(value: Mapping[str, Any]) -> StructuredOutputs:
    param = "structured_outputs"
    # False says the same as leaving it out, for options and for json_object.
    given = {name: each for name, each in value.items() if each is not None and each is not False}
    unknown = sorted(given.keys() - _KINDS.keys())
    if unknown:
        raise _wrong(param, f"'{unknown[0][:64]}' is not supported")
    if len(given) != 1:
        raise _wrong(param, f"must hold exactly one of {', '.join(_KINDS)}")
    ((name, each),) = given.items()
    return _kind(name, each, param)


def _kind(name: str, value: Any, param: str) -> StructuredOutputs:
    return _KINDS[name](value, param)


def _json(value: Any, param: str) -> StructuredOutputs:
    return StructuredOutputs(json=value if isinstance(value, str) else _dump(value, param))


def _structural_tag(value: Any, param: str) -> StructuredOutputs:
    text = value if isinstance(value, str) else _dump(value, param)
    return StructuredOutputs(structural_tag=text)


def _regex(value: Any, param: str) -> StructuredOutputs:
    return StructuredOutputs(regex=_text(value, param))


def _grammar(value: Any, param: str) -> StructuredOutputs:
    return StructuredOutputs(grammar=_text(value, param))


def _choice(value: Any, param: str) -> StructuredOutputs:
    if not isinstance(value, list):
        raise _wrong(param, "must be a list of strings")
    return StructuredOutputs(choice=tuple(_text(each, param) for each in value))


def _json_object(value: Any, param: str) -> StructuredOutputs:
    if value is not True:
        raise _wrong(param, "'json_object' must be true or false")
    return StructuredOutputs(json_object=True)


_KINDS: Final[dict[str, Callable[[Any, str], StructuredOutputs]]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
    "structural_tag": _structural_tag,
}


def _text(value: Any, param: str) -> str:
    if not isinstance(value, str):
        raise _wrong(param, "must be a string")
    return value


def _calls(tools: Sequence[CallableTool], parallel: bool) -> dict[str, Any]:
    """References within a tool's schema mean that schema, so each keeps a root of its own."""
    roots = {f"tool{number}": _parameters(tool) for number, tool in enumerate(tools)}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "parameters": {"$ref": f"#/$defs/{root}"}},
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for root, tool in zip(roots, tools, strict=True)
    ]
    schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    if not parallel:
        schema["maxItems"] = 1
    defs = {root: _moved(each, f"#/$defs/{root}") for root, each in roots.items()}
    return {**schema, "$defs": defs}


def _parameters(tool: CallableTool) -> Mapping[str, Any]:
    return _NO_ARGUMENTS if tool.parameters is None else tool.parameters


def _moved(schema: Mapping[str, Any], root: str) -> dict[str, Any]:
    """A copy that lies at ``root`` of a larger schema. Without recursion: clients send it."""
    copy: dict[str, Any] = {}
    left: list[tuple[Any, Any]] = [(schema, copy)]
    while left:
        source, target = left.pop()
        for key, value in source.items() if isinstance(source, Mapping) else enumerate(source):
            new: Any = value
            if isinstance(value, Mapping):
                new = {}
                left.append((value, new))
            elif isinstance(value, list):
                new = [None] * len(value)
                left.append((value, new))
            elif key == "$ref" and isinstance(value, str) and value.startswith("#"):
                new = root + value[1:]
            target[key] = new
    return copy


def _dump(value: Any, param: str) -> str:
    try:
        return json.dumps(value)
    except RecursionError:
        raise _wrong(param, "is nested too deep") from None


def _wrong(param: str, reason: str) -> CallerError:
    return CallerError(f"'{param}': {reason}", param=param, code="invalid_value")
