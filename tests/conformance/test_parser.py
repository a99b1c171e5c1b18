"""What every parser of an answer's text promises, run over each of them.

A parser of the registry is run over ``samples/<its name>.py``; of the reasoning parsers, those with
one class share samples.
"""

import importlib
import json
import random
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.derender.parsers.sample import Sample, check, read
from frontend.derender.parsers.samples.typed_calls import TOOLS
from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import Event, ReasoningDelta, TextDelta, ToolArguments
from splitserve.frontend.derender.parsers.base import Parser
from splitserve.frontend.derender.parsers.harmony import Harmony
from splitserve.frontend.derender.parsers.registry import (
    REASONING_PARSERS,
    TOOL_PARSERS,
    is_harmony,
    reasoning_parser,
    tool_parser,
)

REASONING_SAMPLES = {
    "deepseek_r1": "deepseek_r1",
    "qwen3": "deepseek_r1",
    "glm45": "deepseek_r1",
    "kimi_k2": "deepseek_r1",
    "mistral": "mistral_think",
    "openai_gptoss": "openai",
}
TOOL, REASONING = "tool", "reasoning"
SUBJECTS = [
    *[(TOOL, name) for name in TOOL_PARSERS],
    *[(REASONING, name) for name in REASONING_PARSERS],
]
subject = pytest.mark.parametrize(("kind", "name"), SUBJECTS, ids=map("-".join, SUBJECTS))

LARGE = 500_000
SMALL_STATE = 150_000


def make(kind: str, name: str, sample: Sample) -> Parser:
    call_ids = new_call_ids("seed")
    if kind == TOOL:
        return tool_parser(name)(sample.tools, call_ids)
    if is_harmony(name):
        return Harmony(sample.tools, call_ids)
    return reasoning_parser(name)(sample.thinking)


def markers_of(kind: str, name: str) -> tuple[str, ...]:
    return (tool_parser(name) if kind == TOOL else reasoning_parser(name)).markers


@cache
def samples_of(kind: str, name: str) -> Sequence[Sample]:
    module = name if kind == TOOL else REASONING_SAMPLES[name]
    path = f"frontend.derender.parsers.samples.{module}"
    try:
        found: list[Sample] = importlib.import_module(path).SAMPLES
    except ModuleNotFoundError as error:
        raise AssertionError(f"{kind} parser {name} has no samples: {error}") from None
    return found


def parsed(kind: str, name: str, sample: Sample, pieces: Iterable[str]) -> list[Event]:
    """All events, with a parser that is restored from its state between any two pieces."""
    parser = make(kind, name, sample)
    events: list[Event] = []
    for piece in pieces:
        fed = fed_as_quiet_says(parser, piece)
        events += fed
        state = json.loads(json.dumps(parser.state()))
        parser = make(kind, name, sample)
        parser.restore(state)
    events += parser.finish()
    return merged(events)


def fed_as_quiet_says(parser: Parser, piece: str) -> Sequence[Event]:
    """Feeds ``piece``; what may go around feeding must change nothing and give the same."""
    quiet, before = parser.quiet(), parser.state()
    around = quiet is not None and quiet.matches(piece) is not None
    fed = parser.feed(piece)
    if quiet is not None and around:
        assert piece
        assert list(fed) == [quiet.event(piece)]
        assert parser.state() == before
    return fed


def merged(events: Iterable[Event]) -> list[Event]:
    """Neighbours of one kind joined."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        match last, event:
            case TextDelta(before), TextDelta(more):
                found[-1] = TextDelta(before + more)
            case ReasoningDelta(before), ReasoningDelta(more):
                found[-1] = ReasoningDelta(before + more)
            case ToolArguments(index, before), ToolArguments(same, more) if index == same:
                found[-1] = ToolArguments(index, before + more)
            case _:
                found.append(event)
    return found


def cut(text: str, places: Iterable[int]) -> list[str]:
    return [text[a:b] for a, b in pairwise([0, *sorted(places), len(text)])]


def random_cuts(text: str, source: random.Random) -> list[str]:
    most = source.choice((2, 5, 12))
    return cut(text, {source.randrange(len(text) + 1) for _ in range(source.randrange(most) + 1)})


def test_every_reasoning_parser_has_samples() -> None:
    assert REASONING_SAMPLES.keys() == REASONING_PARSERS.keys()


@subject
def test_every_sample_is_read_as_it_says(kind: str, name: str) -> None:
    samples = samples_of(kind, name)
    names = [sample.name for sample in samples]
    assert len(set(names)) > 5
    for sample in samples:
        check(sample, read(parsed(kind, name, sample, [sample.text])))


@subject
def test_every_cut_in_two_gives_the_same(kind: str, name: str) -> None:
    for sample in samples_of(kind, name):
        whole = parsed(kind, name, sample, [sample.text])
        for place in range(len(sample.text) + 1):
            pieces = cut(sample.text, [place])
            assert parsed(kind, name, sample, pieces) == whole, (sample.name, pieces)


@subject
def test_character_by_character_gives_the_same(kind: str, name: str) -> None:
    for sample in samples_of(kind, name):
        whole = parsed(kind, name, sample, [sample.text])
        assert parsed(kind, name, sample, sample.text) == whole, sample.name


@subject
@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_any_cuts_give_the_same(kind: str, name: str, seed: int) -> None:
    source = random.Random(seed)
    for sample in source.choices(samples_of(kind, name), k=20):
        whole = parsed(kind, name, sample, [sample.text])
        pieces = random_cuts(sample.text, source)
        assert parsed(kind, name, sample, pieces) == whole, (sample.name, pieces)


@cache
def fragments(kind: str, name: str) -> tuple[str, ...]:
    """What texts are made of that look like this parser's format and are none."""
    markers = markers_of(kind, name)
    halves = [marker[:place] for marker in markers for place in (1, len(marker) // 2, -1)]
    words = [
        word for sample in samples_of(kind, name) for word in re.findall(r"\W|\w+", sample.text)
    ]
    starts = [sample.text[: len(sample.text) // 2] for sample in samples_of(kind, name)]
    return (
        *markers,
        *halves,
        *sorted(set(words))[:150],
        *starts,
        *'{}[]()",:\\ \n=<>9-',
        "now",
        "é",
    )


@subject
@given(data=st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_text_in_any_cuts_gives_the_same_and_loses_nothing(
    kind: str, name: str, data: st.DataObject
) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(fragments(kind, name)), max_size=14)))
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    thinking = data.draw(st.sampled_from(("open", "start", "closed")))
    sample = Sample("any", text, tools=TOOLS, thinking=thinking)
    whole = parsed(kind, name, sample, [text])
    assert parsed(kind, name, sample, cut(text, places)) == whole
    assert parsed(kind, name, sample, text) == whole
    found = read(whole)
    if found.calls:
        return
    if is_harmony(name):
        # A message's header is markup, which has none of these.
        shown = found.content + found.reasoning
        assert [shown.count(char) for char in '{}"[]é'] == [text.count(char) for char in '{}"[]é']
    elif kind == TOOL:
        assert found.content == text
    else:
        marker = re.compile("|".join(map(re.escape, markers_of(kind, name))))
        shown = marker.sub("", found.reasoning) + marker.sub("", found.content)
        assert shown.lstrip() == marker.sub("", text).lstrip()


def large_texts(kind: str, name: str) -> list[str]:
    """Half of a call, or of the longest answer, and then ever more of something."""
    samples = [sample for sample in samples_of(kind, name) if sample.tools == TOOLS]
    longest = max(samples or samples_of(kind, name), key=lambda sample: len(sample.text)).text
    markers = "".join(markers_of(kind, name)) or "["
    tails = [
        markers,
        *markers_of(kind, name)[:1],
        " ",
        "<",
        "[",
        '{"a":',
        "9",
        "\\",
        "x,",
        "a='b',",
    ]
    return [
        start + tail * (LARGE // len(tail))
        for tail in tails
        for start in ("", longest[: len(longest) // 2])
    ]


@subject
def test_large_texts_are_read_in_time_and_with_a_small_state(kind: str, name: str) -> None:
    for text in large_texts(kind, name):
        sample = Sample("large", text, tools=TOOLS, thinking="open")
        parser = make(kind, name, sample)
        events = [*parser.feed(text)]
        assert len(json.dumps(parser.state())) < SMALL_STATE, text[:100]
        events += parser.finish()
        assert events


@subject
def test_what_is_no_state_is_refused(kind: str, name: str) -> None:
    sample = samples_of(kind, name)[0]
    good = make(kind, name, sample).state()
    for bad in (None, 7, "", {}, [], [None], [good], [*good, 0], good[:-1]):
        with pytest.raises((ValueError, KeyError, TypeError)):
            make(kind, name, sample).restore(bad)
