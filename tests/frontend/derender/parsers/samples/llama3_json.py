"""Llama 3: bare JSON objects, or objects after a tag."""

from frontend.derender.parsers.sample import Call, Sample
from frontend.derender.parsers.samples.arguments import (
    CUT,
    NESTED,
    NESTED_VALUE,
    OSLO,
    RAW_LINES,
    RAW_LINES_TEXT,
    UNICODE,
    UNICODE_VALUE,
)
from splitserve.frontend.derender.parsers.base import ToolSpec

TOOLS = tuple(ToolSpec(name) for name in ("weather", "now", "table", "say", "run", "ask", "read"))
TAG = "<|python_tag|>"


def call(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def sample(name: str, text: str, content: str = "", calls: tuple[Call, ...] = ()) -> Sample:
    return Sample(name, text, content, calls=calls, tools=TOOLS)


WEATHER = Call("weather", {"city": "Oslo"})
NOW = Call("now", {})
TWO = (WEATHER, NOW)
JSON_ANSWER = '{"city": "Oslo", "name": "weather", "parameters": {}}'
UNKNOWN = call("launch", "{}")
LISTED = f"[{call('now', '{}')}]"
PYTHON = f"{TAG}print({{1: 2}})"

SAMPLES: list[Sample] = [
    sample("no call", 'It is cold. {"a": 1}', 'It is cold. {"a": 1}'),
    sample("one call", call("weather", OSLO), calls=(WEATHER,)),
    sample("whitespace around", f"\n  {call('weather', OSLO)}\n", calls=(WEATHER,)),
    sample("after the tag", TAG + call("weather", OSLO), calls=(WEATHER,)),
    sample("prose, then the tag", f"I look.\n{TAG}{call('now', '{}')}", "I look.", calls=(NOW,)),
    sample("any name after the tag", TAG + UNKNOWN, calls=(Call("launch", {}),)),
    *[
        sample(
            f"two calls separated by {separator!r} {'with' if tag else 'without'} tag (vllm#49923)",
            tag + call("weather", OSLO) + separator + call("now", "{}"),
            calls=TWO,
        )
        for separator in (";", "; ", ";\n", "\n", " ;  ", ", ", "")
        for tag in ("", TAG)
    ],
    sample(
        "three calls, a semicolon in a string",
        "; ".join([call("ask", '{"q": "a; b"}'), call("now", "{}"), call("now", "{}")]),
        calls=(Call("ask", {"q": "a; b"}), NOW, NOW),
    ),
    sample(
        "two calls of one tool",
        call("read", '{"path": "a"}') + "; " + call("read", '{"path": "b"}'),
        calls=(Call("read", {"path": "a"}), Call("read", {"path": "b"})),
    ),
    sample("empty arguments", call("now", "{}"), calls=(Call("now", "{}"),)),
    sample("no arguments", '{"name": "now"}', calls=(Call("now", "{}"),)),
    sample("nested arguments", call("table", NESTED), calls=(Call("table", NESTED_VALUE),)),
    sample("unicode and escapes", call("say", UNICODE), calls=(Call("say", UNICODE_VALUE),)),
    sample("raw line breaks", call("run", RAW_LINES), calls=(Call("run", RAW_LINES_TEXT),)),
    sample(
        "the tag in a string", call("ask", f'{{"q": "{TAG}"}}'), calls=(Call("ask", {"q": TAG}),)
    ),
    sample("key arguments", '{"name": "weather", "arguments": {"city": "Oslo"}}', calls=(WEATHER,)),
    sample(
        "type, and parameters before the name",
        '{"type": "function", "parameters": {"city": "Oslo"}, "name": "weather"}',
        calls=(WEATHER,),
    ),
    sample(
        "braces in prose after a call (vllm#49923)",
        call("weather", OSLO) + ' used {tool} with {"k": 1}',
        content=' used {tool} with {"k": 1}',
        calls=(WEATHER,),
    ),
    sample(
        "a separator and no call",
        call("weather", OSLO) + "; done",
        content="; done",
        calls=(WEATHER,),
    ),
    sample("a tool that is not offered", UNKNOWN, UNKNOWN),
    sample(
        "a second tool that is not offered",
        f"{call('now', '{}')}; {UNKNOWN}",
        content=f"; {UNKNOWN}",
        calls=(NOW,),
    ),
    sample("JSON that is no call", JSON_ANSWER, JSON_ANSWER),
    sample("a list of calls", LISTED, LISTED),
    sample("code after the tag", PYTHON, PYTHON),
    sample("cut in the arguments", call("weather", CUT)[:-1], calls=(Call("weather", CUT),)),
    sample("cut after the arguments", call("weather", OSLO)[:-1], calls=(WEATHER,)),
    sample("cut in the name", '{"name": "wea', '{"name": "wea'),
    sample(
        "wrong after the arguments have begun",
        '{"name": "weather", "parameters": {"city": Oslo}}',
        content="Oslo}}",
        calls=(Call("weather", '{"city": '),),
    ),
    sample("a brace", "{", "{"),
    sample("only whitespace", "\n\n", "\n\n"),
    sample("the tag quoted", f"Write {TAG} first.", f"Write {TAG} first."),
]
