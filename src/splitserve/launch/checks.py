"""Checks of settings whose errors name the key's path and the nearest right word."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args

import msgspec

from splitserve.errors import ConfigError


def check_value(path: str, value: object, right: bool, rule: str) -> None:
    """Raises ConfigError unless ``right``: ``path`` broke ``rule``."""
    if not right:
        raise ConfigError(f"{path} {rule} (got {value!r})")


def one_of(path: str, value: str, allowed: Sequence[str]) -> None:
    """Raises ConfigError unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise ConfigError(
            f"{path} must be one of {', '.join(allowed)} (got {value!r}){_nearest(value, allowed)}"
        )


def reject_unknown_keys(data: dict[str, Any], kind: type[msgspec.Struct], path: str = "") -> None:
    """Raises ConfigError for the first key, at any depth, that ``kind`` has no field for."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, value in data.items():
        here = f"{path}.{key}" if path else key
        if key not in fields:
            nearest = _nearest(key, list(fields)) or f"; known are {', '.join(fields)}"
            raise ConfigError(f"{here}: unknown key{nearest}")
        for number, table in enumerate(value if isinstance(value, list) else [value]):
            inner = _struct_in(fields[key].type)
            if isinstance(table, dict) and inner is not None:
                place = f"{here}[{number}]" if isinstance(value, list) else here
                reject_unknown_keys(table, inner, place)


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    """The struct that ``annotation`` is, or is a tuple of."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return kind
    return None


def _nearest(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
