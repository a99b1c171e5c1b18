"""DeepSeek V3.1: name and arguments between special tokens."""

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
from splitserve.frontend.derender.parsers.deepseek import (
    BEGIN,
    END,
    SECTION,
    SECTION_END,
    SEPARATOR,
)


def call(name: str, arguments: str) -> str:
    return f"{BEGIN}{name}{SEPARATOR}{arguments}{END}"


def section(*calls: str) -> str:
    return SECTION + "".join(calls) + SECTION_END


WEATHER = Call("weather", {"city": "Oslo"})
NOW = Call("now", {})
NOT_AN_OBJECT = section(call("now", '"{}"'))
NO_NAME = section(call("", "{}"))
V3 = f"{SECTION}{BEGIN}function{SEPARATOR}now\n```json\n{{}}\n```{END}{SECTION_END}"
QUOTED = f"First {SECTION}, then {BEGIN}, in the end {SECTION_END}."
HALF = "<\uff5ctool▁calls▁be <\uff5c"

SAMPLES: list[Sample] = [
    Sample("no call", f"{{}} {HALF}", f"{{}} {HALF}"),
    Sample("one call", section(call("weather", OSLO)), calls=(WEATHER,)),
    Sample(
        "three calls",
        section(call("weather", OSLO), call("now", "{}"), call("weather", OSLO)),
        calls=(WEATHER, NOW, WEATHER),
    ),
    Sample(
        "prose around",
        f"Let me see.\n\n{section(call('weather', OSLO))}\nDone.",
        content="Let me see.\nDone.",
        calls=(WEATHER,),
    ),
    Sample(
        "prose between",
        f"{SECTION}{call('now', '{}')} and {call('now', '{}')}{SECTION_END}",
        content=" and",
        calls=(NOW, NOW),
    ),
    Sample(
        "whitespace between the marks",
        f"{SECTION}\n{BEGIN} now {SEPARATOR}\n{{}}\n{END}\n{SECTION_END}\n",
        calls=(NOW,),
    ),
    Sample("no section", call("weather", OSLO) + call("now", "{}"), calls=(WEATHER, NOW)),
    Sample("empty arguments", section(call("now", "{}")), calls=(Call("now", "{}"),)),
    Sample(
        "nested arguments", section(call("table", NESTED)), calls=(Call("table", NESTED_VALUE),)
    ),
    Sample("exact text", section(call("table", NESTED)), calls=(Call("table", NESTED),)),
    Sample(
        "unicode and escapes", section(call("say", UNICODE)), calls=(Call("say", UNICODE_VALUE),)
    ),
    Sample(
        "raw line breaks", section(call("run", RAW_LINES)), calls=(Call("run", RAW_LINES_TEXT),)
    ),
    Sample(
        "end markers in a string",
        section(call("ask", f'{{"q": "{END}{SECTION_END}"}}'), call("now", "{}")),
        calls=(Call("ask", {"q": f"{END}{SECTION_END}"}), NOW),
    ),
    Sample(
        "two calls of one tool",
        section(call("read", '{"path": "a"}'), call("read", '{"path": "b"}')),
        calls=(Call("read", {"path": "a"}), Call("read", {"path": "b"})),
    ),
    Sample("no end of the section", SECTION + call("weather", OSLO), calls=(WEATHER,)),
    Sample("no end at all", (SECTION + call("weather", OSLO)).removesuffix(END), calls=(WEATHER,)),
    Sample(
        "cut in the arguments",
        f"{SECTION}{BEGIN}weather{SEPARATOR}{CUT}",
        calls=(Call("weather", CUT),),
    ),
    Sample("cut in the name", f"{SECTION}{BEGIN}wea", f"{SECTION}{BEGIN}wea"),
    Sample("cut in a mark", f"{SECTION}{BEGIN[:5]}", f"{SECTION}{BEGIN[:5]}"),
    Sample("arguments that are a string", NOT_AN_OBJECT, NOT_AN_OBJECT),
    Sample("no name", NO_NAME, NO_NAME),
    Sample("the older format", V3, V3),
    Sample(
        "wrong after the arguments have begun",
        section(call("weather", '{"city": Oslo}'), call("now", "{}")),
        content=f"Oslo}}{END}",
        calls=(Call("weather", '{"city": '), NOW),
    ),
    Sample("markers quoted", QUOTED, QUOTED),
    Sample(
        "a call after a broken one",
        section(f"{BEGIN}broken{END}", call("now", "{}")),
        content=f"{SECTION}{BEGIN}broken{END}",
        calls=(NOW,),
    ),
]
