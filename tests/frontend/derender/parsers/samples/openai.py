"""Answers of gpt-oss."""

import json
from collections.abc import Sequence

from frontend.derender.parsers.sample import Call, Sample
from frontend.derender.parsers.samples.typed_calls import TOOLS, call, in_prose


def message(header: str, text: str, end: str = "<|end|>") -> str:
    return f"<|start|>assistant{header}<|message|>{text}{end}"


def commentary(written: Call) -> str:
    return message(
        f"<|channel|>commentary to=functions.{written.name} <|constrain|>json",
        json.dumps(written.arguments, ensure_ascii=False),
        "<|call|>",
    )


def first(text: str) -> str:
    """The prompt has begun the first message."""
    return text.removeprefix("<|start|>assistant")


def write(calls: Sequence[Call]) -> str:
    return "".join(map(commentary, calls))


THOUGHT = "<|channel|>analysis<|message|>think <b><|end|>"
FINAL = message("<|channel|>final", "Yes.", "<|return|>")
NOW = (call("now"),)


def now(name: str, text: str, content: str = "", reasoning: str = "") -> Sample:
    return Sample(name, text, content, reasoning, NOW, TOOLS)


SAMPLES: list[Sample] = [
    *in_prose(write, kept=str),
    Sample("thought and answer", THOUGHT + FINAL, "Yes.", "think <b>"),
    Sample("answer alone", "<|channel|>final<|message|>Yes.", "Yes."),
    Sample("no message", "Hello <b> to=you\n", "Hello <b> to=you\n"),
    Sample("no message, but its end", "Hello<|return|>", "Hello"),
    Sample("nothing", ""),
    Sample(
        "thoughts are joined",
        THOUGHT + message("<|channel|>analysis", "more") + FINAL,
        "Yes.",
        "think <b>more",
    ),
    Sample("a preamble", message("<|channel|>commentary", "I look.") + FINAL, "I look.Yes."),
    Sample("no channel", message("", "a") + FINAL, "aYes."),
    now("thought and call", THOUGHT + commentary(NOW[0]), "", "think <b>"),
    now("first message", first(commentary(NOW[0]))),
    now(
        "recipient before the channel",
        THOUGHT
        + message(" to=functions.now<|channel|>commentary <|constrain|>json", "{}", "<|call|>"),
        "",
        "think <b>",
    ),
    now(
        "recipient before the channel of the first message",
        " to=functions.now<|channel|>commentary<|message|>{}<|call|>",
    ),
    now(
        "recipient after the type",
        message("<|channel|>commentary <|constrain|>json to=functions.now", "{}", "<|call|>"),
    ),
    now("no constraint", message("<|channel|>commentary to=functions.now json", "{}")),
    now(
        "constraint without a space",
        message("<|channel|>commentary to=functions.now<|constrain|>json", " {} \n", "<|call|>"),
    ),
    now("in the channel of thoughts", message("<|channel|>analysis to=functions.now", "{}")),
    now("no channel of a call", message(" to=functions.now", "{}", "<|call|>")),
    now("no namespace", message("<|channel|>commentary to=now", "{}", "<|call|>")),
    now("no arguments", message("<|channel|>commentary to=functions.now", "", "<|call|>")),
    now("the last marker is missing", message("<|channel|>commentary to=functions.now", "{}", "")),
    now("answer after a call", commentary(NOW[0]) + FINAL, "Yes."),
    Sample(
        "a call of a tool that is not offered",
        write([call("f", a=1)]),
        calls=(call("f", a=1),),
        tools=TOOLS,
    ),
    Sample("a call where none is offered", write([call("f", a=1)]), write([call("f", a=1)])),
    Sample(
        "markers in a string",
        write([call("bare", a="<|call|><|start|>")]),
        calls=(call("bare", a="<|call|><|start|>"),),
        tools=TOOLS,
    ),
    Sample(
        "a tool of the model's own",
        message("<|channel|>analysis to=python code", "print(1)", "<|call|>") + FINAL,
        "Yes.",
        "print(1)",
        tools=TOOLS,
    ),
    Sample(
        "a tool of the model's own in another channel",
        message("<|channel|>commentary to=browser.open", "{}", "<|call|>"),
        message("<|channel|>commentary to=browser.open", "{}", "<|call|>"),
        tools=TOOLS,
    ),
    Sample(
        "arguments are no object",
        message("<|channel|>commentary to=functions.now", "[]"),
        message("<|channel|>commentary to=functions.now", "[]"),
        tools=TOOLS,
    ),
    Sample(
        "broken arguments",
        message("<|channel|>commentary to=functions.now", '{"a" 1}') + FINAL,
        "1}Yes.",
        calls=(Call("now", '{"a" '),),
        tools=TOOLS,
    ),
    Sample(
        "text after arguments",
        message("<|channel|>commentary to=functions.now", "{} ok"),
        " ok",
        calls=NOW,
        tools=TOOLS,
    ),
    Sample(
        "no end of a message",
        "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>"
        "final<|message|>b<|channel|>analysis<|message|>c",
        "b",
        "ac",
    ),
    Sample(
        "another role", "<|start|>user<|message|>Hi<|end|>", "<|start|>user<|message|>Hi<|end|>"
    ),
    Sample(
        "an unknown channel", "<|channel|>thoughts<|message|>a", "<|channel|>thoughts<|message|>a"
    ),
    Sample("a header without a message", "a<|channel|>final<|end|>b", "a<|channel|>final<|end|>b"),
    Sample(
        "a long header",
        f"<|channel|>final {'x' * 600}<|message|>a",
        f"<|channel|>final {'x' * 600}<|message|>a",
    ),
    Sample("an end between messages", "<|channel|>final<|message|>a<|end|><|end|>b", "a<|end|>b"),
    Sample("cut in thoughts", "<|channel|>analysis<|message|>a<|en", "", "a<|en"),
    Sample("cut in a header", "<|channel|>fin", "<|channel|>fin"),
    Sample(
        "cut in a call's header",
        message("<|channel|>commentary to=functions.now", " ", ""),
        message("<|channel|>commentary to=functions.now", " ", ""),
        tools=TOOLS,
    ),
    Sample(
        "cut in a call",
        message("<|channel|>commentary to=functions.f", '{"city": "Ro', ""),
        calls=(Call("f", '{"city": "Ro'),),
        tools=TOOLS,
    ),
]
