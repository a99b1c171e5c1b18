"""Calls of tools with a schema, for every format in which values are typed by it."""

from collections.abc import Callable, Sequence
from typing import Any

from frontend.derender.parsers.sample import Call, Sample
from splitserve.frontend.derender.parsers.base import ToolSpec


def tool(name: str, **types: Any) -> ToolSpec:
    """A tool whose parameters have these JSON schemas, or these types."""
    properties = {
        key: value if isinstance(value, dict) else {"type": value} for key, value in types.items()
    }
    return ToolSpec(name, {"type": "object", "properties": properties})


TOOLS = (
    tool("get_weather", city="string", days="integer", metric="boolean"),
    tool("now"),
    tool("write_file", path="string", content="string"),
    tool(
        "search",
        query="string",
        limit="integer",
        exact="boolean",
        ratio="number",
        tags="array",
        filters="object",
        cursor={"anyOf": [{"type": "string"}, {"type": "null"}]},
        anything={},
    ),
    ToolSpec("bare"),
)


def call(tool_name: str, **arguments: Any) -> Call:
    return Call(tool_name, arguments)


CALLS: dict[str, tuple[Call, ...]] = {
    "no parameters": (call("now"),),
    "one string": (call("get_weather", city="Oslo"),),
    "empty string": (call("get_weather", city=""),),
    "spaces in a string": (call("get_weather", city="  New York ", days=1),),
    "unicode": (call("get_weather", city="Zürich 東京 \U0001f469\u200d\U0001f467 \u2028e\u0301"),),
    "quotes": (call("write_file", path="C:\\new\\table", content='say "hi" \\ it\'s \\n'),),
    "line breaks": (call("write_file", path="a.py", content="def f():\n\treturn 1\r\n\n"),),
    "markup": (call("write_file", path="a", content='<b>1 < 2 && 3 > 2</b> {"a": [}'),),
    "strings like json": (call("write_file", path="5", content='{"a": true}'),),
    "control characters": (call("write_file", path="\x00\x1f", content="\x7f"),),
    "scalars": (call("search", query="q", limit=3, exact=True, ratio=0.5),),
    "signs": (call("search", limit=-7, exact=False, ratio=-1e-05),),
    "null": (call("search", cursor=None, query="null"),),
    "nullable": (call("search", cursor="nullable", query="None"),),
    "containers": (
        call(
            "search",
            tags=["a", ["b", {"c": None}], 1.5, True],
            filters={"x": {"y": [1, 2]}, "": "é"},
        ),
    ),
    "empty containers": (call("search", tags=[], filters={}),),
    "brackets in strings": (call("search", tags=['grep "]" x', "}{"], filters={")": "'("}),),
    "no schema": (call("bare", a="plain", b=[1, "two", None], c=5, d=True, e=None),),
    "same tool twice": (call("get_weather", city="a"), call("get_weather", city="b")),
    "three calls": (
        call("get_weather", city="Oslo", days=3, metric=True),
        call("now"),
        call("search", query="x", tags=["y"]),
    ),
}


def in_prose(
    write: Callable[[Sequence[Call]], str], *, kept: Callable[[str], str] = str.rstrip
) -> list[Sample]:
    """Every set of calls as ``write`` writes it, alone and after text; ``kept`` is the content that
    comes of text before a call."""
    alone = [Sample(name, write(calls), calls=calls, tools=TOOLS) for name, calls in CALLS.items()]
    before = "Let me look. 1 < 2\n\n"
    after = [
        Sample(f"{name} after text", before + write(calls), kept(before), calls=calls, tools=TOOLS)
        for name, calls in CALLS.items()
        if len(calls) > 1 or name in ("no parameters", "unicode")
    ]
    return alone + after
