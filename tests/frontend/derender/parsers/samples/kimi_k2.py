"""Kimi K2: id and arguments between special tokens."""

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

SECTION = "<|tool_calls_section_begin|>"
BEGIN = "<|tool_call_begin|>"
ARGUMENTS = "<|tool_call_argument_begin|>"
END = "<|tool_call_end|>"
SECTION_END = "<|tool_calls_section_end|>"


def call(call_id: str, arguments: str) -> str:
    return f"{BEGIN}{call_id}{ARGUMENTS}{arguments}{END}"


def section(*calls: str) -> str:
    return SECTION + "".join(calls) + SECTION_END


WEATHER = Call("weather", {"city": "Oslo"}, "functions.weather:0")
NOW = Call("now", {}, "functions.now:1")
ONE = call("functions.weather:0", OSLO)
TWO = call("functions.now:1", "{}")
NO_NUMBER = section(call("functions.now", "{}"))
NOT_AN_OBJECT = section(call("functions.now:0", '"{city: Oslo}"'))
NO_ARGUMENTS = section(call("functions.now:0", ""))
QUOTED = f"First {SECTION}, then {BEGIN}, in the end {SECTION_END}."
HALF = "<|tool_calls_section <|tool_call <|"

SAMPLES: list[Sample] = [
    Sample("no call", f"{{}} {HALF}", f"{{}} {HALF}"),
    Sample("one call", section(ONE), calls=(WEATHER,)),
    Sample(
        "three calls, numbered on from earlier turns",
        section(
            call("functions.weather:7", OSLO),
            call("functions.now:8", "{}"),
            call("functions.weather:9", OSLO),
        ),
        calls=(
            Call("weather", {"city": "Oslo"}, "functions.weather:7"),
            Call("now", {}, "functions.now:8"),
            Call("weather", {"city": "Oslo"}, "functions.weather:9"),
        ),
    ),
    Sample(
        "prose around",
        f"Let me see.\n\n{section(ONE, TWO)}\nDone.",
        content="Let me see.\nDone.",
        calls=(WEATHER, NOW),
    ),
    Sample(
        "prose between",
        f"{SECTION}{ONE} and {TWO}{SECTION_END}",
        content=" and",
        calls=(WEATHER, NOW),
    ),
    Sample(
        "whitespace between the marks",
        f"{SECTION}\n{BEGIN}functions.now:1 {ARGUMENTS}\n {{}} {END}\n{SECTION_END}\n",
        calls=(NOW,),
    ),
    Sample("no section", ONE + TWO, calls=(WEATHER, NOW)),
    Sample("no namespace", section(call("now:0", "{}")), calls=(Call("now", {}, "now:0"),)),
    Sample(
        "dots in the name",
        section(call("functions.fs.read-all_1:3", "{}")),
        calls=(Call("fs.read-all_1", {}, "functions.fs.read-all_1:3"),),
    ),
    Sample("empty arguments", section(TWO), calls=(Call("now", "{}"),)),
    Sample("nested", section(call("table:0", NESTED)), calls=(Call("table", NESTED_VALUE),)),
    Sample("exact text", section(call("table:0", NESTED)), calls=(Call("table", NESTED),)),
    Sample("unicode", section(call("say:0", UNICODE)), calls=(Call("say", UNICODE_VALUE),)),
    Sample("raw lines", section(call("run:0", RAW_LINES)), calls=(Call("run", RAW_LINES_TEXT),)),
    Sample(
        "end markers in a string",
        section(call("ask:0", f'{{"q": "{END}{SECTION_END}"}}'), TWO),
        calls=(Call("ask", {"q": f"{END}{SECTION_END}"}), NOW),
    ),
    Sample(
        "two calls of one tool",
        section(call("read:0", '{"path": "a"}'), call("read:1", '{"path": "b"}')),
        calls=(Call("read", {"path": "a"}, "read:0"), Call("read", {"path": "b"}, "read:1")),
    ),
    Sample("no end of the section", SECTION + ONE, calls=(WEATHER,)),
    Sample("no end at all", (SECTION + ONE).removesuffix(END), calls=(WEATHER,)),
    Sample("no end of the call", section(ONE.removesuffix(END), TWO), calls=(WEATHER, NOW)),
    Sample(
        "cut in the arguments",
        f"{SECTION}{BEGIN}functions.weather:0{ARGUMENTS}{CUT}",
        calls=(Call("weather", CUT, "functions.weather:0"),),
    ),
    Sample("cut in the id", f"{SECTION}{BEGIN}functions.wea", f"{SECTION}{BEGIN}functions.wea"),
    Sample("cut in a mark", f"{SECTION}{BEGIN[:5]}", f"{SECTION}{BEGIN[:5]}"),
    Sample("no number", NO_NUMBER, NO_NUMBER),
    Sample("no arguments", NO_ARGUMENTS, NO_ARGUMENTS),
    Sample("arguments that are a string", NOT_AN_OBJECT, NOT_AN_OBJECT),
    Sample(
        "wrong after the arguments have begun",
        section(call("weather:0", '{"city": Oslo}'), TWO),
        content=f"Oslo}}{END}",
        calls=(Call("weather", '{"city": ', "weather:0"), NOW),
    ),
    Sample("markers quoted", QUOTED, QUOTED),
    Sample(
        "a call after a broken one",
        section(f"{BEGIN}broken{END}", TWO),
        content=f"{SECTION}{BEGIN}broken{END}",
        calls=(NOW,),
    ),
]
