"""Answers that are held to JSON: a list of calls, or the arguments of one."""

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


def listed(*calls: tuple[str, str]) -> str:
    objects = [f'{{"name": "{name}", "parameters": {arguments}}}' for name, arguments in calls]
    return f"[{', '.join(objects)}]"


def required(name: str, text: str, content: str = "", calls: tuple[Call, ...] = ()) -> Sample:
    return Sample(name, text, content, calls=calls, tools=TOOLS)


WEATHER = Call("weather", {"city": "Oslo"})
NOW = Call("now", {})
UNKNOWN = listed(("launch", "{}"))
OTHER_KEY = '[{"name": "now", "args": {}}]'
PROSE = "I cannot [do] that {yet}."

SAMPLES: list[Sample] = [
    required("one call", listed(("weather", OSLO)), calls=(WEATHER,)),
    required(
        "three calls",
        listed(("weather", OSLO), ("now", "{}"), ("weather", OSLO)),
        calls=(WEATHER, NOW, WEATHER),
    ),
    required(
        "whitespace everywhere",
        ' \n[ {\n"name" : "now" ,\n"parameters" : {} }\n,\n{"name":"now"} ]\n ',
        calls=(NOW, NOW),
    ),
    required("no list", '{"name": "now"}', '{"name": "now"}'),
    required("an empty list", "[]", "[]"),
    required("empty arguments", listed(("now", "{}")), calls=(Call("now", "{}"),)),
    required("nested arguments", listed(("table", NESTED)), calls=(Call("table", NESTED_VALUE),)),
    required("unicode", listed(("say", UNICODE)), calls=(Call("say", UNICODE_VALUE),)),
    required("raw lines", listed(("run", RAW_LINES)), calls=(Call("run", RAW_LINES_TEXT),)),
    required(
        "an end in a string", listed(("ask", '{"q": "}]"}')), calls=(Call("ask", {"q": "}]"}),)
    ),
    required(
        "two calls of one tool",
        listed(("read", '{"path": "a"}'), ("read", '{"path": "b"}')),
        calls=(Call("read", {"path": "a"}), Call("read", {"path": "b"})),
    ),
    required("key arguments", '[{"name": "now", "arguments": {}}]', calls=(NOW,)),
    required(
        "parameters first", f'[{{"parameters": {OSLO}, "name": "weather"}}]', calls=(WEATHER,)
    ),
    required("cut in the arguments", listed(("weather", CUT))[:-2], calls=(Call("weather", CUT),)),
    required("cut before the end", listed(("weather", OSLO))[:-1], calls=(WEATHER,)),
    required(
        "cut in the second call",
        listed(("weather", OSLO), ("now", "{}"))[:-20],
        content=', {"name": "now"',
        calls=(WEATHER,),
    ),
    required("a tool that is not offered", UNKNOWN, UNKNOWN),
    required("another key", OTHER_KEY, OTHER_KEY),
    required("prose", PROSE, PROSE),
    required("prose after", listed(("now", "{}")) + " Done.", " Done.", calls=(NOW,)),
]


def named(name: str, text: str, content: str = "", calls: tuple[Call, ...] = ()) -> Sample:
    return Sample(name, text, content, calls=calls, tools=(ToolSpec("say"),))


NAMED_SAMPLES: list[Sample] = [
    named("arguments", OSLO, calls=(Call("say", OSLO),)),
    named("empty", "{}", calls=(Call("say", "{}"),)),
    named("whitespace around", f"\n {OSLO}\n\n", calls=(Call("say", OSLO),)),
    named("nested", NESTED, calls=(Call("say", NESTED_VALUE),)),
    named("unicode", UNICODE, calls=(Call("say", UNICODE_VALUE),)),
    named("raw lines", RAW_LINES, calls=(Call("say", RAW_LINES_TEXT),)),
    named("a name among the arguments", '{"name": "x"}', calls=(Call("say", {"name": "x"}),)),
    named("cut", CUT, calls=(Call("say", CUT),)),
    named("cut after an escape", '{"a": "\\u00', calls=(Call("say", '{"a": "\\u00'),)),
    named("a list", "[1]", "[1]"),
    named("prose", PROSE, PROSE),
    named("nothing", ""),
    named("whitespace alone", " \n", " \n"),
    named("wrong in the middle", '{"a": 01}', "1}", calls=(Call("say", '{"a": 0'),)),
    named("a second object", "{} {}", " {}", calls=(Call("say", "{}"),)),
]
