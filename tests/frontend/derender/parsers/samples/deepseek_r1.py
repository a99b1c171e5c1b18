"""Answers of models that think between tags."""

from frontend.derender.parsers.sample import Sample

SAMPLES: list[Sample] = [
    Sample("start: a block", "<think>a < b</think>Yes.", "Yes.", "a < b"),
    Sample(
        "start: space before a block", "\n \n<think>\nhm\n</think>\n\nYes.", "\n\nYes.", "\nhm\n"
    ),
    Sample("start: no block", "Yes, <think> is a tag.", "Yes, <think> is a tag."),
    Sample(
        "start: no block, but its end",
        "Close it with </think> please",
        "Close it with </think> please",
    ),
    Sample("start: space and no block", " \n Yes.\n", " \n Yes.\n"),
    Sample(
        "start: too much space for a block",
        " " * 65 + "<think>a</think>b",
        " " * 65 + "<think>a</think>b",
    ),
    Sample("start: most space before a block", " " * 64 + "<think>a</think>b", "b", "a"),
    Sample("start: cut in the begin", "<thi", "<thi"),
    Sample("start: cut in the space", " \n", " \n"),
    Sample("start: nothing", ""),
    Sample("start: an empty block", "<think>\n\n</think>\n\nYes.", "\n\nYes.", "\n\n"),
    Sample("start: never closed", "<think>a <b> c", "", "a <b> c"),
    Sample("start: cut in the end", "<think>a</thin", "", "a</thin"),
    Sample(
        "start: a second block", "<think>a</think>b<think>c</think>d", "b<think>c</think>d", "a"
    ),
    Sample("open: the end", "plan</think>Answer.", "Answer.", "plan", thinking="open"),
    Sample(
        "open: the end in the answer",
        "plan</think>close it with </think> please",
        "close it with </think> please",
        "plan",
        thinking="open",
    ),
    Sample(
        "open: the begin again",
        "\n<think>\nplan</think>Answer.",
        "Answer.",
        "\nplan",
        thinking="open",
    ),
    Sample("open: the begin within", "a <think> b</think>c", "c", "a <think> b", thinking="open"),
    Sample("open: space", " \nplan", "", " \nplan", thinking="open"),
    Sample("open: much space", " " * 70 + "plan", "", " " * 70 + "plan", thinking="open"),
    Sample("open: cut in the begin", "<thin", "", "<thin", thinking="open"),
    Sample("open: nothing thought", "</think>Yes.", "Yes.", thinking="open"),
    Sample(
        "open: near the end", "a</think</thin></think>b", "b", "a</think</thin>", thinking="open"
    ),
    Sample(
        "open: call markers in thoughts",
        "use <tool_call>{}</tool_call>?</think>ok",
        "ok",
        "use <tool_call>{}</tool_call>?",
        thinking="open",
    ),
    Sample(
        "open: unicode",
        "思考 \U0001f914\u2028</think>答え\r\n\x00",
        "答え\r\n\x00",
        "思考 \U0001f914\u2028",
        thinking="open",
    ),
    Sample("closed: tags are text", "<think>a</think>b", "<think>a</think>b", thinking="closed"),
    Sample("closed: space", " \nYes.\n", " \nYes.\n", thinking="closed"),
]
