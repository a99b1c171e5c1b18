"""Answers of Qwen3-Coder."""

import json
from collections.abc import Sequence
from typing import Any

from frontend.derender.parsers.sample import Call, Sample
from frontend.derender.parsers.samples.typed_calls import TOOLS, call, in_prose


def value(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def function(written: Call) -> str:
    parameters = "".join(
        f"<parameter={key}>\n{value(given)}\n</parameter>\n"
        for key, given in written.arguments.items()
    )
    return f"<function={written.name}>\n{parameters}</function>"


def write(calls: Sequence[Call]) -> str:
    return "\n".join(f"<tool_call>\n{function(written)}\n</tool_call>" for written in calls)


NOW = "<tool_call>\n<function=now>\n</function>\n</tool_call>"

SAMPLES: list[Sample] = [
    *in_prose(write),
    Sample(
        "no call",
        "Just text with <b>tags</b>, 1 < 2 and a <tool> in it.\n",
        tools=TOOLS,
        content="Just text with <b>tags</b>, 1 < 2 and a <tool> in it.\n",
    ),
    Sample(
        "text around and between",
        f"First.\n{NOW}\nThen.\n{NOW}\nDone.\n",
        "First.\nThen.\nDone.\n",
        calls=(call("now"), call("now")),
        tools=TOOLS,
    ),
    Sample("no block", "<function=now>\n</function>", calls=(call("now"),), tools=TOOLS),
    Sample(
        "no block but its end",
        "Look:\n<function=now></function>\n</tool_call>",
        "Look:",
        calls=(call("now"),),
        tools=TOOLS,
    ),
    Sample(
        "no block and no such tool",
        "Write <function=f> to call f.",
        "Write <function=f> to call f.",
        tools=TOOLS,
    ),
    Sample(
        "a tool that is not offered",
        "<tool_call><function=f></function></tool_call>",
        calls=(call("f"),),
    ),
    Sample(
        "two functions in a block",
        "<tool_call>\n<function=now>\n</function>\n<function=f>\n</function>\n</tool_call>",
        calls=(call("now"), call("f")),
        tools=TOOLS,
    ),
    Sample(
        "no line breaks",
        "<tool_call><function=get_weather><parameter=city>Oslo</parameter>"
        "<parameter=days>3</parameter></function></tool_call>",
        calls=(call("get_weather", city="Oslo", days=3),),
        tools=TOOLS,
    ),
    Sample(
        "no function end",
        "<tool_call>\n<function=bare>\n<parameter=a>\nx\n</parameter>\n</tool_call>!",
        "!",
        calls=(call("bare", a="x"),),
        tools=TOOLS,
    ),
    Sample(
        "no block end",
        f"<tool_call>\n<function=now>\n</function>\n{NOW}",
        calls=(call("now"), call("now")),
        tools=TOOLS,
    ),
    Sample(
        "other markers in a string",
        "<tool_call>\n<function=write_file>\n<parameter=content>\n</function>\n</tool_call> "
        "<parameter=x>\n<tool_call></ parameter>\n</parameter>\n</function>\n</tool_call>",
        calls=(
            call(
                "write_file",
                content="</function>\n</tool_call> <parameter=x>\n<tool_call></ parameter>",
            ),
        ),
        tools=TOOLS,
    ),
    Sample(
        "python words",
        "<tool_call>\n<function=search>\n<parameter=exact>\nTrue\n</parameter>\n"
        "<parameter=cursor>\nNone\n</parameter>\n</function>\n</tool_call>",
        calls=(call("search", exact=True, cursor=None),),
        tools=TOOLS,
    ),
    Sample(
        "values of no such type",
        "<tool_call>\n<function=search>\n<parameter=limit>\nten\n"
        "</parameter>\n<parameter=exact>\n1\n</parameter>\n<parameter=ratio>\nNaN\n</parameter>"
        "<parameter=filters>\n{'a': 1}\n</parameter>\n<parameter=tags>\n[1] or [2]\n"
        "</parameter>\n</function>\n</tool_call>",
        calls=(
            call(
                "search", limit="ten", exact="1", ratio="NaN", filters="{'a': 1}", tags="[1] or [2]"
            ),
        ),
        tools=TOOLS,
    ),
    Sample(
        "empty values of every type",
        "<tool_call><function=search><parameter=limit>\n"
        "</parameter><parameter=tags></parameter><parameter=anything>\n\n</parameter>"
        "<parameter=cursor></parameter></function></tool_call>",
        calls=(call("search", limit="", tags="", anything="", cursor=""),),
        tools=TOOLS,
    ),
    Sample(
        "cut in a string",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRo",
        calls=(Call("get_weather", '{"city": "Ro'),),
        tools=TOOLS,
    ),
    Sample(
        "cut in a number",
        "<tool_call>\n<function=get_weather>\n<parameter=days>\n12",
        calls=(Call("get_weather", '{"days": 12'),),
        tools=TOOLS,
    ),
    Sample(
        "cut in a list",
        "<tool_call>\n<function=search>\n<parameter=tags>\n[1, [2",
        calls=(Call("search", '{"tags": [1, [2'),),
        tools=TOOLS,
    ),
    Sample(
        "cut after a call's name",
        "<tool_call>\n<function=get_weather>\n<param",
        calls=(Call("get_weather", ""),),
        tools=TOOLS,
    ),
    Sample(
        "cut after a call",
        "<tool_call>\n<function=now>\n</function>\n",
        calls=(call("now"),),
        tools=TOOLS,
    ),
    Sample(
        "cut in a block's end",
        "<tool_call>\n<function=now>\n</function>\n</tool",
        "\n</tool",
        calls=(call("now"),),
        tools=TOOLS,
    ),
    Sample(
        "cut before a call",
        "So:\n<tool_call>\n<function=get_wea",
        "So:\n<tool_call>\n<function=get_wea",
        tools=TOOLS,
    ),
    Sample(
        "a block of something else",
        '<tool_call>\n{"name": "now"}\n</tool_call>',
        '<tool_call>\n{"name": "now"}\n</tool_call>',
        tools=TOOLS,
    ),
    Sample(
        "a call after a block of something else",
        f"<tool_call> hm <tool_call>{NOW}",
        "<tool_call> hm <tool_call>",
        calls=(call("now"),),
        tools=TOOLS,
    ),
    Sample(
        "junk in a call",
        f"<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\nplease {NOW}",
        "\nplease",
        calls=(Call("get_weather", '{"city": "Oslo"'), call("now")),
        tools=TOOLS,
    ),
    Sample(
        "braces after a call",
        f'{NOW} used {{tool}} with {{"k":1}}',
        ' used {tool} with {"k":1}',
        calls=(call("now"),),
        tools=TOOLS,
    ),
]
