"""Structural tags: free text in which certain beginnings oblige to a certain continuation.

The form is vLLM's older one: ``{"structures": [{"begin", "schema", "end"}], "triggers": [...]}``.
Once a trigger is written, the text goes on as one of the structures that begin with it.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from splitserve.errors import CallerError
from splitserve.structured.limits import Limits
from splitserve.structured.schemas import read_json, schema_rule

MAX_STRUCTURES: Final = 128


class _Structure(msgspec.Struct, frozen=True):
    begin: str
    end: str
    schema: dict[str, Any] | bool = True


class _Tag(msgspec.Struct, frozen=True):
    structures: list[_Structure]
    triggers: list[str]


def tag_rules(text: str, special: Mapping[str, int], limits: Limits) -> str:
    """``special`` are the tokenizer's control tokens: text that spells one means the token.

    Raises CallerError for another form, or a structure that no trigger begins.
    """
    tag = _read(text, limits)
    rules = ["start: segment* TEXT", r"TEXT: /(.|\n)*/"]
    by_trigger: dict[str, list[_Structure]] = {}
    for structure in tag.structures:
        by_trigger.setdefault(_trigger(structure, tag.triggers), []).append(structure)
    rules.append("segment: " + " | ".join(f"s{number}" for number in range(len(by_trigger))))
    for number, (trigger, structures) in enumerate(by_trigger.items()):
        rules += _segment(f"s{number}", trigger, structures, special, limits)
    return "\n".join(rules)


def _read(text: str, limits: Limits) -> _Tag:
    value = read_json(text, limits)
    if isinstance(value, dict) and "format" in value:
        raise CallerError("has a 'format'; only 'structures' with 'triggers' are supported yet")
    try:
        tag = msgspec.convert(value, _Tag)
    except msgspec.ValidationError as error:
        raise CallerError(f"is no structural tag: {error}") from None
    if not 0 < len(tag.structures) <= MAX_STRUCTURES:
        raise CallerError(f"must have 1 to {MAX_STRUCTURES} structures")
    if not tag.triggers or not all(tag.triggers):
        raise CallerError("must have triggers, none of them empty")
    return tag


def _trigger(structure: _Structure, triggers: list[str]) -> str:
    for trigger in triggers:
        if structure.begin.startswith(trigger):
            return trigger
    raise CallerError(f"has a structure that no trigger begins: {structure.begin[:64]!r}")


def _segment(
    name: str,
    trigger: str,
    structures: list[_Structure],
    special: Mapping[str, int],
    limits: Limits,
) -> list[str]:
    bodies = []
    for structure in structures:
        begin = _parts(structure.begin.removeprefix(trigger), special)
        body = schema_rule(msgspec.json.encode(structure.schema).decode(), limits)
        bodies.append(" ".join([*begin, body, *_parts(structure.end, special)]))
    rest = f"{name}_rest: " + " | ".join(bodies)
    parts = _parts(trigger, special)
    if parts[0].startswith("<"):
        return [f"{name}: TEXT {' '.join(parts)} {name}_rest", rest]
    # The text ends with the first trigger in it, so its lexeme is the shortest that matches.
    rules = [f"{name}: {name}_text {' '.join([*parts[1:], f'{name}_rest'])}", rest]
    return [*rules, f"{name}_text[lazy]: TEXT {parts[0]}"]


def _parts(text: str, special: Mapping[str, int]) -> list[str]:
    """Literals and control tokens whose joined text is ``text``."""
    if not special:
        return [_quoted(text)] if text else []
    control = re.compile("|".join(re.escape(t) for t in sorted(special, key=len, reverse=True)))
    parts, at = [], 0
    for found in control.finditer(text):
        if found.start() > at:
            parts.append(_quoted(text[at : found.start()]))
        parts.append(f"<[{special[found[0]]}]>")
        at = found.end()
    return [*parts, _quoted(text[at:])] if at < len(text) else parts


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
