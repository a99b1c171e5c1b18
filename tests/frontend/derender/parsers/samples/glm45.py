"""Answers of GLM-4.5 and later."""

from collections.abc import Sequence

from frontend.derender.parsers.sample import Call, Sample
from frontend.derender.parsers.samples.qwen3_coder import value
from frontend.derender.parsers.samples.typed_calls import CALLS, TOOLS, call, in_prose


def write(calls: Sequence[Call], *, newline: str = "\n") -> str:
    return newline.join(
        f"<tool_call>{written.name}{newline}"
        + "".join(
            f"<arg_key>{key}</arg_key>{newline}<arg_value>{value(given)}</arg_value>{newline}"
            for key, given in written.arguments.items()
        )
        + "</tool_call>"
        for written in calls
    )


def write_47(calls: Sequence[Call]) -> str:
    return write(calls, newline="")


NOW = "<tool_call>now\n</tool_call>"

SAMPLES: list[Sample] = [
    *in_prose(write),
    *[
        Sample(f"{name}, no line breaks", write_47(calls), calls=calls, tools=TOOLS)
        for name, calls in CALLS.items()
        if len(calls) > 1 or "s" in name[-1]
    ],
    Sample("no call", "I would <b>not</b> say 1 < 2.", "I would <b>not</b> say 1 < 2."),
    Sample(
        "text around and between",
        f"First.\n{NOW}\nThen.\n{NOW}\nDone.\n",
        "First.\nThen.\nDone.\n",
        calls=(call("now"), call("now")),
        tools=TOOLS,
    ),
    Sample(
        "spaces for line breaks",
        "Look: <tool_call>ls <arg_key>dirPath</arg_key> "
        "<arg_value>backend</arg_value> </tool_call>",
        "Look:",
        calls=(call("ls", dirPath="backend"),),
    ),
    Sample(
        "other markers in a string",
        "<tool_call>write_file\n<arg_key>content</arg_key>\n"
        "<arg_value></tool_call><arg_key>k</arg_key></arg_value>\n</tool_call>",
        calls=(call("write_file", content="</tool_call><arg_key>k</arg_key>"),),
        tools=TOOLS,
    ),
    Sample(
        "cut in a string",
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ro",
        calls=(Call("get_weather", '{"city": "Ro'),),
        tools=TOOLS,
    ),
    Sample("cut in a name", "So: <tool_call>get_wea", "So: <tool_call>get_wea", tools=TOOLS),
    Sample(
        "cut in a key",
        "<tool_call>get_weather\n<arg_key>ci",
        calls=(Call("get_weather", ""),),
        tools=TOOLS,
    ),
    Sample(
        "a block of something else",
        '<tool_call>\n{"name": "now"}\n</tool_call>',
        '<tool_call>\n{"name": "now"}\n</tool_call>',
        tools=TOOLS,
    ),
    Sample(
        "prose for a name",
        f"<tool_call> is a marker </tool_call> {NOW}",
        "<tool_call> is a marker </tool_call>",
        calls=(call("now"),),
        tools=TOOLS,
    ),
    Sample(
        "a key without a value",
        f"<tool_call>bare<arg_key>a</arg_key>x {NOW}",
        "x",
        calls=(Call("bare", '{"a": '), call("now")),
        tools=TOOLS,
    ),
    Sample(
        "junk in a call",
        "<tool_call>now\n<arg_key>a</arg_key><arg_value>1</arg_value>?",
        "?",
        calls=(Call("now", '{"a": 1'),),
        tools=TOOLS,
    ),
]
