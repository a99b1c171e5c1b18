"""Finds schemas that only infinite JSON conforms to: references that run in a circle.

A schema is finite once those parts of it are that no answer can do without. That is a least
fixpoint: it grows from schemas without such parts, and what is never reached runs in a circle.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from splitserve.errors import CallerError

_MISSING: Final = object()


@dataclass(slots=True, eq=False)
class _Node:
    """``needs`` holds groups: of each group at least one must be finite. ``open`` counts those
    that are not yet."""

    needs: list[list[int]] = field(default_factory=list)
    users: list[tuple[int, int]] = field(default_factory=list)
    """Node and group that wait for this one."""
    met: set[int] = field(default_factory=set)
    finite: bool = False


def check_finite(schema: dict[str, Any]) -> None:
    """Raises CallerError when every JSON that conforms to ``schema`` would be infinite.

    References other than into this very schema are left to the library, which refuses them.
    """
    nodes: dict[int, _Node] = {}
    left = [schema]
    while left:
        part = left.pop()
        if id(part) in nodes:
            continue
        node = nodes[id(part)] = _Node()
        for group in _needed(part, schema):
            node.needs.append([id(need) for need in group])
            left += group
    for name, node in nodes.items():
        for number, needed in enumerate(node.needs):
            for need in needed:
                nodes[need].users.append((name, number))
    _grow(nodes)
    if not nodes[id(schema)].finite:
        raise CallerError("has a '$ref' that leads back to itself: no finite JSON conforms to it")


def _grow(nodes: dict[int, _Node]) -> None:
    ready = deque(name for name, node in nodes.items() if not node.needs)
    while ready:
        node = nodes[ready.popleft()]
        if node.finite:
            continue
        node.finite = True
        for name, number in node.users:
            user = nodes[name]
            user.met.add(number)
            if len(user.met) == len(user.needs):
                ready.append(name)


def _needed(part: dict[str, Any], root: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Groups of schemas within ``part`` of which each answer takes at least one."""
    target = _target(part.get("$ref"), root)
    if target is not None:
        yield [target]
    for each in _schemas(part.get("allOf")):
        yield [each]
    for keyword in ("anyOf", "oneOf"):
        alternatives = part.get(keyword, [])
        # Beside schemas there may be true, which needs nothing, and false, which is never taken.
        if _schemas(alternatives) and True not in alternatives:
            yield _schemas(alternatives)
    if part.get("type") == "object":
        yield from _needed_properties(part)
    if part.get("type") == "array":
        yield from _needed_items(part)


def _needed_properties(part: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    required, properties = part.get("required"), part.get("properties")
    if isinstance(required, list) and isinstance(properties, dict):
        for name in required:
            each = properties.get(name) if isinstance(name, str) else None
            if isinstance(each, dict):
                yield [each]


def _needed_items(part: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    least = part.get("minItems")
    if not isinstance(least, int):
        return
    first = part.get("prefixItems")
    first = first if isinstance(first, list) else []
    for each in _schemas(first[: max(0, least)]):
        yield [each]
    items = part.get("items")
    if least > len(first) and isinstance(items, dict):
        yield [items]


def _schemas(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _target(reference: Any, root: dict[str, Any]) -> dict[str, Any] | None:
    """What a reference of the form ``#/a/b`` points to (RFC 6901), if it is a schema in there."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    at: Any = root
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict):
            at = at.get(name, _MISSING)
        elif isinstance(at, list) and name.isascii() and name.isdecimal() and len(name) < 7:
            at = at[int(name)] if int(name) < len(at) else _MISSING
        else:
            return None
    return at if isinstance(at, dict) else None
