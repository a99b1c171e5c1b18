"""Formats whose calls are JSON: every sample reads the same however it is cut."""

from importlib import import_module

import pytest

from frontend.derender.parsers.cutting import cuts, joined, maker
from frontend.derender.parsers.sample import Sample, check
from frontend.derender.parsers.samples import forced
from splitserve.frontend.derender.parsers.base import ToolParser
from splitserve.frontend.derender.parsers.forced import NamedCall, RequiredCalls
from splitserve.frontend.derender.parsers.registry import tool_parser

NAMES = ("hermes", "llama3_json", "mistral", "deepseek_v3", "deepseek_v31", "kimi_k2")
CASES: list[tuple[str, type[ToolParser], Sample]] = [
    *(
        (name, tool_parser(name), sample)
        for name in NAMES
        for sample in import_module(f"frontend.derender.parsers.samples.{name}").SAMPLES
    ),
    *(("required", RequiredCalls, sample) for sample in forced.SAMPLES),
    *(("named", NamedCall, sample) for sample in forced.NAMED_SAMPLES),
]
each_sample = pytest.mark.parametrize(
    ("kind", "sample"),
    [pytest.param(kind, sample, id=f"{name}: {sample.name}") for name, kind, sample in CASES],
)


@each_sample
def test_a_sample_reads_as_it_says(kind: type[ToolParser], sample: Sample) -> None:
    check(sample, joined(maker(kind, sample), [sample.text]))


@each_sample
def test_no_cut_changes_what_is_read(kind: type[ToolParser], sample: Sample) -> None:
    make, text = maker(kind, sample), sample.text
    whole = joined(make, [text])
    assert joined(make, text, checkpoints=True) == whole
    for end in range(len(text) + 1):
        assert joined(make, [text[:end], text[end:]], checkpoints=True) == whole
    for pieces in cuts(text, seed=len(text), count=20):
        assert joined(make, pieces, checkpoints=True) == whole


@each_sample
def test_a_cut_answer_loses_and_invents_nothing(kind: type[ToolParser], sample: Sample) -> None:
    """Whatever the length limit leaves of an answer: what was read of it is a begin of the whole
    answer's calls."""
    make, text = maker(kind, sample), sample.text
    whole = [arguments for _, _, arguments in joined(make, [text]).calls]
    for end in range(len(text)):
        calls = [arguments for _, _, arguments in joined(make, [text[:end]]).calls]
        assert len(calls) <= len(whole)
        assert all(all_of.startswith(part) for part, all_of in zip(calls, whole, strict=False))
