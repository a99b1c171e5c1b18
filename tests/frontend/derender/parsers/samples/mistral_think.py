"""Answers of Mistral's models that think."""

from frontend.derender.parsers.sample import Sample

SAMPLES: list[Sample] = [
    Sample("a block", "[THINK]a [b] c[/THINK]Yes.", "Yes.", "a [b] c"),
    Sample("space before a block", "\n[THINK]a[/THINK]\n[THINK]", "\n[THINK]", "a"),
    Sample("no block", "A list: [1, 2] [THINK]", "A list: [1, 2] [THINK]"),
    Sample("cut in the begin", "[THIN", "[THIN"),
    Sample("cut in the end", "[THINK]a[/THIN", "", "a[/THIN"),
    Sample("open", "a[/THINK][TOOL_CALLS]f{}", "[TOOL_CALLS]f{}", "a", thinking="open"),
    Sample("open, the begin again", "[THINK]a[/THINK]b", "b", "a", thinking="open"),
    Sample("closed", "[THINK]a[/THINK]", "[THINK]a[/THINK]", thinking="closed"),
]
