"""Formats whose calls are JSON. That every sample of a parser that has a name reads the same
however it is cut is a promise of all parsers, see conformance."""

import json
from cProfile import Profile
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.derender.parsers.cutting import cuts, joined, maker
from frontend.derender.parsers.sample import Sample, check
from frontend.derender.parsers.samples import forced
from splitserve.frontend.derender.events import TextDelta, ToolArguments
from splitserve.frontend.derender.parsers.base import ToolParser, ToolSpec
from splitserve.frontend.derender.parsers.forced import NamedCall, RequiredCalls
from splitserve.frontend.derender.parsers.registry import tool_parser

NAMES = ("hermes", "llama3_json", "mistral", "deepseek_v3", "deepseek_v31", "kimi_k2")
Case = tuple[str, type[ToolParser], Sample]
FORCED: list[Case] = [
    *(("required", RequiredCalls, sample) for sample in forced.SAMPLES),
    *(("named", NamedCall, sample) for sample in forced.NAMED_SAMPLES),
]
CASES: list[Case] = [
    *(
        (name, tool_parser(name), sample)
        for name in NAMES
        for sample in import_module(f"frontend.derender.parsers.samples.{name}").SAMPLES
    ),
    *FORCED,
]


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("kind", "sample"),
        [pytest.param(kind, sample, id=f"{name}: {sample.name}") for name, kind, sample in cases],
    )


each_sample = each(CASES)


@each_sample
def test_a_sample_reads_as_it_says(kind: type[ToolParser], sample: Sample) -> None:
    check(sample, joined(maker(kind, sample), [sample.text]))


@each(FORCED)
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


KINDS = [*((name, tool_parser(name)) for name in NAMES), ("required", RequiredCalls)]
each_kind = pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in KINDS])
TOOLS = (ToolSpec("f"),)
PIECES = (
    '{"name": "f", "arguments": {"a": "b"}}',
    '{"name": "f"',
    '"arguments": {"x": "',
    '"parameters": ',
    '{"a": [1, {}]}',
    "f:0",
    "f",
    "function",
    "\n```json\n",
    "\n```",
    *('{}[],:";\\ \n<'),
    "text",
)


@each_kind
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_cut_changes_what_is_read_of_anything(
    kind: type[ToolParser], data: st.DataObject
) -> None:
    pieces = st.sampled_from([*PIECES, *kind.markers, *(mark[:-2] for mark in kind.markers)])
    text = "".join(data.draw(st.lists(pieces, max_size=14)))
    make = maker(kind, Sample("", "", tools=TOOLS))
    whole = joined(make, [text])
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    cut = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    assert joined(make, cut, checkpoints=True) == whole
    assert joined(make, text, checkpoints=True) == whole
    if not whole.calls:
        assert whole.content == text


@each_kind
def test_text_is_not_held_back(kind: type[ToolParser]) -> None:
    parser = maker(kind, Sample("", "", tools=TOOLS))()
    events = [event for word in ("It ", "is ", "cold. ", "<", "b>") for event in parser.feed(word)]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == (
        "It is cold. <b>"
    )


@each_kind
def test_a_long_string_argument_streams(kind: type[ToolParser]) -> None:
    """vllm#30439"""
    sample = next(
        sample for name, of, sample in CASES if of is kind and sample.name.startswith("unicode")
    )
    long = sample.text.replace("na\u00efve", "0123456789abcdef" * 500)
    pieces = [long[at : at + 4] for at in range(0, len(long), 4)]
    parser = maker(kind, sample)()
    came = [any(type(event) is ToolArguments for event in parser.feed(piece)) for piece in pieces]
    first = came.index(True)
    assert all(came[first : first + 1990])
    assert len(json.dumps(parser.state())) < 200


@each_kind
@pytest.mark.parametrize("broken", ["missing", "extra", "foreign", "mixed"])
def test_a_foreign_state_is_refused(kind: type[ToolParser], broken: str) -> None:
    make = maker(kind, Sample("", "", tools=TOOLS))
    state = make().state()
    changed: dict[str, Any] = {
        "missing": state[:-1],
        "extra": [*state, ""],
        "foreign": ["nowhere", *state[1:]],
        "mixed": [7, None, {}, [], "x", 1.5, "y", None],
    }
    with pytest.raises((ValueError, KeyError, TypeError)):
        make().restore(changed[broken])


@each_sample
def test_a_state_with_a_foreign_part_is_refused_or_works(
    kind: type[ToolParser], sample: Sample
) -> None:
    make = maker(kind, sample)
    parser = make()
    parser.feed(sample.text[: len(sample.text) // 2])
    state = json.dumps(parser.state())
    for place in range(len(json.loads(state))):
        for foreign in (None, -1, [], {}, "\x00"):
            changed = json.loads(state)
            changed[place] = foreign
            other = make()
            try:
                other.restore(changed)
            except (ValueError, KeyError, TypeError):
                continue
            other.feed(sample.text[len(sample.text) // 2 :])
            other.finish()


def _work(kind: type[ToolParser], text: str) -> int:
    """Calls of functions that reading ``text`` takes."""
    parser = maker(kind, Sample("", "", tools=TOOLS))()
    profile = Profile()
    profile.runcall(parser.feed, text)
    profile.runcall(parser.finish)
    return sum(entry.callcount for entry in profile.getstats())


@each_kind
@pytest.mark.parametrize(
    "unit",
    [
        "<",
        "[",
        ";",
        '{"a":',
        "{marker}",
        "{half}",
        "{marker}{{",
        '{marker}{{"a":"',
        '{marker}{{"x":"{marker}{{',
        '{{"name":"f","arguments":{{}}}};',
        '{marker}{{"arguments":{{"a":1}},',
    ],
)
def test_work_grows_with_the_text_and_no_faster(kind: type[ToolParser], unit: str) -> None:
    """vllm#55473"""
    marker = next(iter(kind.markers), "[")
    unit = unit.replace("{marker}", marker).replace("{half}", marker[:-1])
    unit = unit.replace("{{", "{").replace("}}", "}")
    once = _work(kind, unit * 300)
    assert _work(kind, unit * 600) <= 2.2 * once + 1000
