"""Answers of Llama 4."""

from frontend.derender.parsers.sample import Sample
from frontend.derender.parsers.samples.pythonic import SAMPLES as BARE
from frontend.derender.parsers.samples.pythonic import F
from frontend.derender.parsers.samples.typed_calls import call

A = (call("f", a=1),)

SAMPLES: list[Sample] = [
    *BARE,
    Sample("markers", "<|python_start|>[f(a=1)]<|python_end|>", calls=A, tools=F),
    Sample(
        "space around markers", " <|python_start|>\n[f(a=1)]\n <|python_end|>\n", calls=A, tools=F
    ),
    Sample("only the begin", "<|python_start|>[f(a=1)]", calls=A, tools=F),
    Sample("only the end", "[f(a=1)]<|python_end|>", calls=A, tools=F),
    Sample(
        "text after markers", "<|python_start|>[f(a=1)]<|python_end|> So.", " So.", calls=A, tools=F
    ),
    Sample(
        "code",
        "<|python_start|>print(1)<|python_end|>",
        "<|python_start|>print(1)<|python_end|>",
        tools=F,
    ),
    Sample("part of a marker", "<|python_st", "<|python_st", tools=F),
    Sample("part of an end", "[f(a=1)]<|python_e", "<|python_e", calls=A, tools=F),
]
