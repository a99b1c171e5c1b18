"""Hermes: JSON between tags."""

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


def tagged(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def call(name: str, arguments: str) -> str:
    return tagged(f'{{"name": "{name}", "arguments": {arguments}}}')


WEATHER = Call("weather", {"city": "Oslo"})
BROKEN = tagged('{"name": "weather", "arguments": ["Oslo"]}')
UNNAMED = tagged('{"arguments": {"city": "Oslo"}}')
OTHER_KEY = tagged('{"name": "weather", "args": {"city": "Oslo"}}')
QUOTED_BEGIN = "Calls begin with <tool_call> and end with </tool_call>."

SAMPLES: list[Sample] = [
    Sample("no call", "It is <b>cold</b> in {Oslo}. <tool", "It is <b>cold</b> in {Oslo}. <tool"),
    Sample("one call", call("weather", OSLO), calls=(WEATHER,)),
    Sample(
        "prose before and after",
        f"Let me see.\n\n{call('weather', OSLO)}\n\nThat is all.\n",
        content="Let me see.\n\nThat is all.\n",
        calls=(WEATHER,),
    ),
    Sample(
        "three calls, prose between the last two",
        f"{call('weather', OSLO)}\n{call('now', '{}')}\nand\n{call('weather', OSLO)}\n",
        content="\nand",
        calls=(WEATHER, Call("now", {}), WEATHER),
    ),
    Sample("empty arguments (vllm#28806)", call("now", "{}"), calls=(Call("now", "{}"),)),
    Sample("no arguments", tagged('{"name": "now"}'), calls=(Call("now", "{}"),)),
    Sample(
        "arguments that are null",
        tagged('{"name": "now", "arguments": null}'),
        calls=(Call("now", "{}"),),
    ),
    Sample("nested arguments", call("table", NESTED), calls=(Call("table", NESTED_VALUE),)),
    Sample("exact text of arguments", call("table", NESTED), calls=(Call("table", NESTED),)),
    Sample("unicode and escapes", call("say", UNICODE), calls=(Call("say", UNICODE_VALUE),)),
    Sample(
        "raw line breaks in a string", call("run", RAW_LINES), calls=(Call("run", RAW_LINES_TEXT),)
    ),
    Sample(
        "end marker in a string (sglang#28698)",
        call("ask", '{"q": "what does </tool_call> mean?"}') + call("now", "{}"),
        calls=(Call("ask", {"q": "what does </tool_call> mean?"}), Call("now", {})),
    ),
    Sample(
        "a whole call in a string",
        call("ask", '{"q": "<tool_call>{\\"name\\": \\"f\\"}</tool_call>"}'),
        calls=(Call("ask", {"q": '<tool_call>{"name": "f"}</tool_call>'}),),
    ),
    Sample(
        "two calls of one tool (vllm#33965)",
        call("read", '{"path": "a"}') + "\n" + call("read", '{"path": "b"}'),
        calls=(Call("read", {"path": "a"}), Call("read", {"path": "b"})),
    ),
    Sample(
        "parameters instead of arguments",
        tagged('{"name": "weather", "parameters": {"city": "Oslo"}}'),
        calls=(WEATHER,),
    ),
    Sample(
        "arguments before the name, and other keys",
        tagged('{"id": "c1", "why": [1, {}], "arguments": {"city": "Oslo"}, "name": "weather"}'),
        calls=(WEATHER,),
    ),
    Sample(
        "keys after the arguments",
        tagged('{"name": "weather", "arguments": {"city": "Oslo"}, "why": "it is, \\"}", "n": 1}'),
        calls=(WEATHER,),
    ),
    Sample(
        "arguments in a string",
        tagged('{"name": "say", "arguments": "{\\"text\\": \\"a \\\\\\"b\\\\\\" \\\\n\\"}"}'),
        calls=(Call("say", {"text": 'a "b" \n'}),),
    ),
    Sample("all on one line", "<tool_call>" + call("now", "{}")[12:], calls=(Call("now", {}),)),
    Sample("no end marker at the end", call("weather", OSLO)[:-13], calls=(WEATHER,)),
    Sample(
        "half an end marker at the end",
        call("now", "{}")[:-4],
        "\n</tool_c",
        calls=(Call("now", {}),),
    ),
    Sample(
        "no end marker between calls",
        call("weather", OSLO)[:-12] + call("now", "{}"),
        calls=(WEATHER, Call("now", {})),
    ),
    Sample(
        "cut in the arguments (vllm#20028)",
        f'<tool_call>\n{{"name": "weather", "arguments": {CUT}',
        calls=(Call("weather", CUT),),
    ),
    Sample("cut in the name", '<tool_call>\n{"name": "wea', '<tool_call>\n{"name": "wea'),
    Sample("cut before the name", "Hm.\n<tool_call>", "Hm.\n<tool_call>"),
    Sample("arguments that are a list", BROKEN, BROKEN),
    Sample("no name", UNNAMED, UNNAMED),
    Sample("arguments under another key", OTHER_KEY, OTHER_KEY),
    Sample(
        "wrong after the arguments have begun",
        tagged('{"name": "weather", "arguments": {"city": Oslo}}'),
        content="Oslo}}\n</tool_call>",
        calls=(Call("weather", '{"city": '),),
    ),
    Sample(
        "wrong after the arguments",
        tagged('{"name": "weather", "arguments": {"city": "Oslo"}]') + call("now", "{}"),
        content="]\n</tool_call>",
        calls=(WEATHER, Call("now", {})),
    ),
    Sample("markers quoted", QUOTED_BEGIN, QUOTED_BEGIN),
    Sample(
        "a call after a broken one",
        f"{BROKEN}\n{call('now', '{}')}",
        content=BROKEN,
        calls=(Call("now", {}),),
    ),
    Sample(
        "a call in what was taken for a string of another",
        f'<tool_call>\n{{"nam: "{call("weather", OSLO)}',
        content='<tool_call>\n{"nam: "',
        calls=(WEATHER,),
    ),
    Sample(
        "half markers",
        "<tool<tool_call<tool_calls></tool_call>",
        "<tool<tool_call<tool_calls></tool_call>",
    ),
]
