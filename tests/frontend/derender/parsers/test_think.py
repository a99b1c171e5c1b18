"""Reasoning between tags."""

from splitserve.frontend.derender.events import ReasoningDelta, TextDelta
from splitserve.frontend.derender.parsers.reasoning.mistral import MistralThink
from splitserve.frontend.derender.parsers.reasoning.think import ThinkTags


def test_the_end_of_thoughts_and_the_begin_of_the_answer_in_one_piece() -> None:
    parser = ThinkTags("open")
    parser.feed("The")
    assert list(parser.feed(" last thought.</think>Answer.")) == [
        ReasoningDelta(" last thought."),
        TextDelta("Answer."),
    ]


def test_thoughts_come_as_they_are_written() -> None:
    parser = ThinkTags("open")
    assert list(parser.feed("a <")) == [ReasoningDelta("a ")]
    assert list(parser.feed("b")) == [ReasoningDelta("<b")]
    assert list(parser.feed("c")) == [ReasoningDelta("c")]


def test_an_answer_without_thoughts_is_not_held_back() -> None:
    parser = ThinkTags("start")
    assert list(parser.feed("Y")) == [TextDelta("Y")]
    assert list(parser.feed("")) == []


def test_only_as_much_is_held_back_as_may_become_a_block() -> None:
    parser = ThinkTags("start")
    assert list(parser.feed(" \n<thi")) == []
    assert list(parser.feed("s")) == [TextDelta(" \n<this")]


def test_space_is_not_held_back_without_end() -> None:
    parser = ThinkTags("start")
    assert list(parser.feed(" " * 64)) == []
    assert list(parser.feed(" ")) == [TextDelta(" " * 65)]


def test_each_parser_says_what_its_block_is() -> None:
    assert (ThinkTags.begin, ThinkTags.end) == ThinkTags.markers == ("<think>", "</think>")
    assert (MistralThink.begin, MistralThink.end) == MistralThink.markers == ("[THINK]", "[/THINK]")
