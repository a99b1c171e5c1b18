"""Answers of DeepSeek V3.2."""

from collections.abc import Sequence

from frontend.derender.parsers.sample import Call, Sample
from frontend.derender.parsers.samples.qwen3_coder import value
from frontend.derender.parsers.samples.typed_calls import TOOLS, call, in_prose

D = "\uff5cDSML\uff5c"


def invoke(written: Call) -> str:
    parameters = "".join(
        f'<{D}parameter name="{key}" string="{"true" if isinstance(given, str) else "false"}">'
        f"{value(given)}</{D}parameter>\n"
        for key, given in written.arguments.items()
    )
    return f'<{D}invoke name="{written.name}">\n{parameters}</{D}invoke>'


def write(calls: Sequence[Call]) -> str:
    return f"<{D}function_calls>\n" + "\n".join(map(invoke, calls)) + f"\n</{D}function_calls>"


def one(parameter: str) -> str:
    return (
        f'<{D}function_calls><{D}invoke name="search">{parameter}</{D}invoke></{D}function_calls>'
    )


SAMPLES: list[Sample] = [
    *in_prose(write),
    Sample("no call", f"The marker {D} and <{D}> alone.", f"The marker {D} and <{D}> alone."),
    Sample(
        "text around",
        f"Look.\n\n{write([call('now')])}\nDone.",
        "Look.\nDone.",
        calls=(call("now"),),
        tools=TOOLS,
    ),
    Sample("no block", invoke(call("now")), calls=(call("now"),), tools=TOOLS),
    Sample("no block and no such tool", invoke(call("f")), invoke(call("f")), tools=TOOLS),
    Sample(
        "no mark of strings",
        one(
            f'<{D}parameter name="limit">5</{D}parameter>'
            f'<{D}parameter name="query">5</{D}parameter>'
        ),
        calls=(call("search", limit=5, query="5"),),
        tools=TOOLS,
    ),
    Sample(
        "a string of another type",
        one(f'<{D}parameter name="limit" string="true">5</{D}parameter>'),
        calls=(call("search", limit="5"),),
        tools=TOOLS,
    ),
    Sample(
        "no string, and no JSON",
        one(f'<{D}parameter name="anything" string="false">a b</{D}parameter>'),
        calls=(call("search", anything="a b"),),
        tools=TOOLS,
    ),
    Sample(
        "line breaks are kept",
        one(f'<{D}parameter name="query" string="true">\na\n</{D}parameter>'),
        calls=(call("search", query="\na\n"),),
        tools=TOOLS,
    ),
    Sample(
        "cut in a string",
        f'<{D}function_calls><{D}invoke name="search">'
        f'<{D}parameter name="query" string="true">Ro</{D}par',
        calls=(Call("search", f'{{"query": "Ro</{D}par'),),
        tools=TOOLS,
    ),
    Sample(
        "cut before a call",
        f'<{D}function_calls><{D}invoke name="sea',
        f'<{D}function_calls><{D}invoke name="sea',
        tools=TOOLS,
    ),
    Sample(
        "a parameter without a name",
        one(f"<{D}parameter>5</{D}parameter>"),
        f"<{D}parameter>5</{D}parameter></{D}invoke></{D}function_calls>",
        calls=(Call("search", ""),),
        tools=TOOLS,
    ),
]
