"""Answers that are lists of Python calls."""

from collections.abc import Sequence

from frontend.derender.parsers.sample import Call, Sample
from frontend.derender.parsers.samples.typed_calls import CALLS, TOOLS, call, tool

F = (tool("f"), tool("g"))


def written(one: Call) -> str:
    keywords = ", ".join(f"{key}={given!r}" for key, given in one.arguments.items())
    return f"{one.name}({keywords})"


def write(calls: Sequence[Call]) -> str:
    return f"[{', '.join(map(written, calls))}]"


def f(name: str, text: str, content: str = "", **arguments: object) -> Sample:
    """``text`` is one call of f with these arguments."""
    return Sample(name, text, content, calls=(Call("f", arguments),), tools=F)


SAMPLES: list[Sample] = [
    *[Sample(name, write(calls), calls=calls, tools=TOOLS) for name, calls in CALLS.items()],
    f("bracket in a string", """[f(c='grep "]" x')]""", c='grep "]" x'),
    f("line break in a string", "[f(c='a\nb')]", c="a\nb"),
    f("backslash at the end", r"[f(c='p\\')]", c="p\\"),
    f("negative number", "[f(lon=-74.5)]", lon=-74.5),
    f("tuple", "[f(size=(8,6))]", size=[8, 6]),
    f("reserved word", "[f(from=1, class='x', None=2)]", **{"from": 1, "class": "x", "None": 2}),
    f("space around", " \n[f(a=1)]\n", a=1),
    f("spaces everywhere", "[ f ( a = 1 , b = [ 1 , 2 ] , ) , ]", a=1, b=[1, 2]),
    f("nested tuples", "[f(a=((1, 2), (3,), (), (4), ('x' 'y')))]", a=[[1, 2], [3], [], 4, "xy"]),
    f("strings in a row", "[f(a='x' \"y\"\n'z')]", a="xyz"),
    f(
        "three quotes",
        "[f(a=\"\"\"say \"hi\" to '''it'''\"\"\", b='''''', c=\"\")]",
        a="say \"hi\" to '''it'''",
        b="",
        c="",
    ),
    f("raw string", r"""[f(a=r'\d+\'', b=R"\n")]""", a="\\d+\\'", b="\\n"),
    f(
        "escapes",
        r"""[f(a='\x41\u00e9\U0001f600\ud83d\ude00\101\0\q\xZ\
\a')]""",
        a="Aé\U0001f600\U0001f600A\0\\q\\xZ\a",
    ),
    f(
        "numbers",
        "[f(a=+5, b=.5, c=5., d=1e5, e=-0, g=00, h=1E-3)]",
        a=5,
        b=0.5,
        c=5.0,
        d=1e5,
        e=0,
        g=0,
        h=1e-3,
    ),
    f(
        "words of both languages",
        "[f(a=[True, true, False, false, None, null])]",
        a=[True, True, False, False, None, None],
    ),
    f(
        "keys of dicts",
        "[f(a={'x': 1, 2: (3,), None: {}, True: [],})]",
        a={"x": 1, "2": [3], "null": {}, "true": []},
    ),
    f("unicode keyword", "[f(größe=1)]", größe=1),
    f("text after", "[f(a=1)] and more\n", " and more\n", a=1),
    Sample("two calls without parameters", "[f(), g()]", calls=(call("f"), call("g")), tools=F),
    Sample("no call", "Hello [f(a=1)]", "Hello [f(a=1)]", tools=F),
    Sample("a list", "[1, 2]", "[1, 2]", tools=F),
    Sample("too much space for a call", f"[f({' ' * 600}a=1)]", f"[f({' ' * 600}a=1)]", tools=F),
    Sample("an empty list", "[]", "[]", tools=F),
    Sample("a link", "[f](http://x)", "[f](http://x)", tools=F),
    Sample("no such tool", "[h(a=1)]", "[h(a=1)]", tools=F),
    Sample("no tools", "[f(a=1)]", "[f(a=1)]"),
    Sample("no keyword", "[f(1)]", "[f(1)]", tools=F),
    Sample("a comparison", "[f(a==1)]", "[f(a==1)]", tools=F),
    Sample("a call in a call", "[f(a=g())]", "g())]", calls=(Call("f", '{"a": '),), tools=F),
    Sample("a sum", "[f(a='x' + 'y')]", "+ 'y')]", calls=(Call("f", '{"a": "x"'),), tools=F),
    Sample("a set", "[f(a={1, 2})]", ", 2})]", calls=(Call("f", '{"a": {"1"'),), tools=F),
    Sample("not a number", "[f(a=nan)]", "nan)]", calls=(Call("f", '{"a": '),), tools=F),
    Sample("octal", "[f(a=007)]", "007)]", calls=(Call("f", '{"a": '),), tools=F),
    Sample("wrong second call", "[f(a=1), h(b=2)]", ", h(b=2)]", calls=(call("f", a=1),), tools=F),
    Sample("cut in a string", "[f(a='Ro", calls=(Call("f", '{"a": "Ro'),), tools=F),
    Sample("cut in a number", "[f(a=12", calls=(Call("f", '{"a": 12'),), tools=F),
    Sample("cut after a string", "[f(a='x'", calls=(Call("f", '{"a": "x"'),), tools=F),
    Sample("cut in a group", "[f(a=('x", calls=(Call("f", '{"a": "x'),), tools=F),
    Sample("cut in a keyword", "[f(a=1, bc", calls=(Call("f", '{"a": 1'),), tools=F),
    Sample("cut before a call", "[f(a", "[f(a", tools=F),
    Sample("cut in a second call", "[f(a=1), g(", ", g(", calls=(call("f", a=1),), tools=F),
]
