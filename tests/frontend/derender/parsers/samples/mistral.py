"""Mistral: a list of objects, or name and arguments."""

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

BEGIN = "[TOOL_CALLS]"


def listed(*calls: tuple[str, str]) -> str:
    objects = [f'{{"name": "{name}", "arguments": {arguments}}}' for name, arguments in calls]
    return f"{BEGIN}[{', '.join(objects)}]"


def named(name: str, arguments: str) -> str:
    return f"{BEGIN}{name}[ARGS]{arguments}"


WEATHER = Call("weather", {"city": "Oslo"})
NOW = Call("now", {})
SECOND_BROKEN = f'{BEGIN}[{{"name": "now", "arguments": {{}}}}, {{"nome": 1}}]'
NO_ARGUMENTS = f"{BEGIN}now[ARGS]"
PROSE = f"{BEGIN} is what begins a call, [ARGS] what comes before {{}}."

SAMPLES: list[Sample] = [
    Sample("no call", "Use [TOOL] or [1, 2]. [TOOL_CALLS", "Use [TOOL] or [1, 2]. [TOOL_CALLS"),
    Sample("a list of one", listed(("weather", OSLO)), calls=(WEATHER,)),
    Sample(
        "a list of three",
        listed(("weather", OSLO), ("now", "{}"), ("weather", OSLO)),
        calls=(WEATHER, NOW, WEATHER),
    ),
    Sample(
        "a list with spaces and lines",
        f'{BEGIN} [\n  {{"name": "now", "arguments": {{}}}} ,\n  {{"name": "now"}}\n]\n',
        calls=(NOW, NOW),
    ),
    Sample(
        "a list with ids",
        f'{BEGIN}[{{"name": "now", "arguments": {{}}, "id": "abcdefghi"}}]',
        calls=(NOW,),
    ),
    Sample(
        "an object without a list",
        listed(("weather", OSLO)).replace("[{", "{")[:-1],
        calls=(WEATHER,),
    ),
    Sample("a name", named("weather", OSLO), calls=(WEATHER,)),
    Sample("a name without marks", f"{BEGIN}weather{OSLO}", calls=(WEATHER,)),
    Sample("a name with spaces", f"{BEGIN} weather [ARGS] {OSLO}", calls=(WEATHER,)),
    Sample("a name with an id", f"{BEGIN}weather[CALL_ID]abcdefghi[ARGS]{OSLO}", calls=(WEATHER,)),
    Sample("an id alone", f"{BEGIN}weather[CALL_ID]abcdefghi{OSLO}", calls=(WEATHER,)),
    Sample(
        "names in a row",
        named("weather", OSLO) + named("now", "{}") + named("weather", OSLO),
        calls=(WEATHER, NOW, WEATHER),
    ),
    Sample(
        "prose before, between and after",
        f"Let me see.\n{named('weather', OSLO)}\nand {named('now', '{}')}\nDone.",
        content="Let me see.\nand\nDone.",
        calls=(WEATHER, NOW),
    ),
    Sample("prose before a list", f"Yes. {listed(('now', '{}'))}", "Yes.", calls=(NOW,)),
    Sample("empty arguments", named("now", "{}"), calls=(Call("now", "{}"),)),
    Sample("nested arguments", named("table", NESTED), calls=(Call("table", NESTED_VALUE),)),
    Sample("nested in a list", listed(("table", NESTED)), calls=(Call("table", NESTED),)),
    Sample("unicode and escapes", named("say", UNICODE), calls=(Call("say", UNICODE_VALUE),)),
    Sample("raw line breaks", named("run", RAW_LINES), calls=(Call("run", RAW_LINES_TEXT),)),
    Sample(
        "markers in a string",
        named("ask", '{"q": "[TOOL_CALLS]f[ARGS]{}]"}') + named("now", "{}"),
        calls=(Call("ask", {"q": "[TOOL_CALLS]f[ARGS]{}]"}), NOW),
    ),
    Sample(
        "two calls of one tool",
        listed(("read", '{"path": "a"}'), ("read", '{"path": "b"}')),
        calls=(Call("read", {"path": "a"}), Call("read", {"path": "b"})),
    ),
    Sample(
        "parameters before the name",
        f'{BEGIN}[{{"parameters": {OSLO}, "name": "weather"}}]',
        calls=(WEATHER,),
    ),
    Sample("no end of the list", listed(("weather", OSLO))[:-1], calls=(WEATHER,)),
    Sample("cut in the arguments", named("weather", CUT), calls=(Call("weather", CUT),)),
    Sample("cut in a list", listed(("weather", CUT))[:-2], calls=(Call("weather", CUT),)),
    Sample("cut in the name", f"{BEGIN}wea", f"{BEGIN}wea"),
    Sample(
        "a list whose second call is broken",
        SECOND_BROKEN,
        content=', {"nome": 1}]',
        calls=(NOW,),
    ),
    Sample("an empty list", f"{BEGIN}[]", f"{BEGIN}[]"),
    Sample("no arguments", NO_ARGUMENTS, NO_ARGUMENTS),
    Sample("arguments that are a list", f"{BEGIN}f[ARGS][1]", f"{BEGIN}f[ARGS][1]"),
    Sample("markers quoted", PROSE, PROSE),
    Sample(
        "the marker twice",
        f"{BEGIN}{named('now', '{}')}",
        content=BEGIN,
        calls=(NOW,),
    ),
    Sample(
        "wrong after the arguments have begun",
        named("weather", '{"city": Oslo}') + named("now", "{}"),
        content="Oslo}",
        calls=(Call("weather", '{"city": '), NOW),
    ),
]
