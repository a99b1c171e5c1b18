"""A matcher allows exactly what its constraint allows, whoever took the first tokens."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from small_tokenizer import NAMES, ids_of, text_of, tokenizer_json
from splitserve.engine.grammar.matcher import EXCESS_S, TOKEN_S, Endings, Matcher
from splitserve.engine.grammar.store import Grammars
from splitserve.errors import CallerError
from splitserve.protocol.sampling import StructuredOutputs
from splitserve.structured.grammars import build, grammar_of

EOS = 2
VOCAB = 96
THINK, DONE = tuple(ids_of("<a>")), tuple(ids_of("</>"))
GRAMMARS = Grammars(lambda: tokenizer_json(len(NAMES)), VOCAB, (EOS,))
ENDINGS = Endings(frozenset({EOS}), frozenset())
AB = StructuredOutputs(regex="a+b")
POINT = StructuredOutputs(
    json=json.dumps(
        {
            "type": "object",
            "properties": {"a": {"enum": [1, 12, True]}, "bc": {"type": "boolean"}},
            "required": ["a", "bc"],
            "additionalProperties": False,
        }
    )
)


def start(structured: StructuredOutputs, stops: tuple[int, ...] = (EOS,)) -> Matcher:
    return GRAMMARS.matcher(structured, stops)


def after(structured: StructuredOutputs, tokens: list[int], **fields: Any) -> Matcher:
    matcher = start(structured, **fields)
    for token in tokens:
        matcher.accept(token)
    return matcher


def follow(matcher: Matcher, tokens: list[int]) -> None:
    """Asks for the mask before each token, as an engine does."""
    for token in tokens:
        matcher.mask()
        matcher.accept(token)


def start_of(structured: StructuredOutputs) -> Callable[[], LLMatcher]:
    grammar = build(LLTokenizer(tokenizer_json(len(NAMES)), n_vocab=VOCAB), grammar_of(structured))
    return grammar.deep_copy


def allowed(matcher: Matcher, avoid: tuple[int, ...] = ()) -> set[int]:
    mask = matcher.mask(avoid)
    assert mask is not None
    assert len(mask) == VOCAB // 8
    return {token for token in range(VOCAB) if mask[token // 8] >> token % 8 & 1}


def written(matcher: Matcher, seed: int) -> list[int]:
    """A random answer that keeps to the masks."""
    stream, tokens = random.Random(seed), []
    while not matcher.done and len(tokens) < 200:
        token = stream.choice(sorted(allowed(matcher)))
        tokens.append(token)
        matcher.accept(token)
    return tokens


def test_only_what_conforms_is_allowed_and_at_the_end_only_the_end() -> None:
    matcher = start(AB)
    assert allowed(matcher) == set(ids_of("a"))
    matcher.accept(*ids_of("a"))
    assert {text_of([each]) for each in allowed(matcher)} == {"a", "b"}
    matcher.accept(*ids_of("b"))
    assert allowed(matcher) == {EOS}
    assert not matcher.done
    matcher.accept(EOS)
    assert matcher.done


def test_pieces_of_several_characters_are_allowed_where_they_fit() -> None:
    found = {text_of([each]) for each in allowed(after(POINT, ids_of("{")))}
    assert found == {'"', '"a"', " ", "\n"}
    found = {text_of([each]) for each in allowed(after(POINT, [*ids_of('{"a'), *ids_of('"')]))}
    assert found == {":", " ", "\n"}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_every_answer_that_keeps_to_the_masks_conforms(seed: int) -> None:
    tokens = written(start(POINT), seed)
    assert tokens[-1] == EOS
    value = json.loads(text_of(tokens))
    assert value["a"] in (1, 12, True)
    assert isinstance(value["bc"], bool)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1))
def test_the_state_is_a_function_of_the_output_tokens(seed: int, part: float) -> None:
    tokens = written(start(POINT), seed)
    cut = int(part * (len(tokens) - 1))
    continued, fresh = after(POINT, tokens[:cut]), start(POINT)
    follow(fresh, tokens[:cut])
    for token in tokens[cut:]:
        assert continued.mask() == fresh.mask()
        continued.accept(token)
        fresh.accept(token)
    assert continued.done
    assert continued.count == len(tokens)


def test_stop_ids_may_end_a_fulfilled_grammar_and_no_other() -> None:
    stop = 1
    matcher = start(AB, (EOS, stop))
    assert allowed(matcher) == set(ids_of("a"))
    for token in ids_of("ab"):
        matcher.accept(token)
    assert allowed(matcher) == {EOS, stop}
    matcher.accept(stop)
    assert matcher.done


def test_a_stop_id_that_is_text_of_the_answer_is_taken_as_text() -> None:
    stop = ids_of("b")[0]
    matcher = after(StructuredOutputs(regex="a+b?b?"), ids_of("ab"), stops=(EOS, stop))
    assert not matcher.done
    assert allowed(matcher) == {EOS, stop}
    matcher.accept(stop)
    assert not matcher.done
    matcher.accept(stop)
    assert matcher.done


def test_ids_to_avoid_are_left_out_unless_nothing_else_is_allowed() -> None:
    letters = StructuredOutputs(regex="a+")
    a = ids_of("a")[0]
    assert allowed(after(letters, [a])) == {a, EOS}
    assert allowed(after(letters, [a]), avoid=(EOS,)) == {a}
    assert allowed(after(AB, ids_of("ab")), avoid=(EOS,)) == {EOS}


def thinking(**fields: Any) -> StructuredOutputs:
    return StructuredOutputs(regex="a+b", think_end=DONE, **fields)


def test_open_reasoning_is_free_until_its_end() -> None:
    matcher = after(thinking(think_open=True), [*ids_of("xy</a"), *DONE[:2]])
    assert matcher.mask() is None
    matcher.accept(DONE[2])
    assert allowed(matcher) == set(ids_of("a"))


def test_an_answer_may_begin_with_reasoning_or_with_the_grammar() -> None:
    structured = thinking(think_begin=THINK)
    assert allowed(start(structured)) == {*ids_of("a"), THINK[0]}
    assert allowed(after(structured, list(THINK[:1]))) == {THINK[1]}
    assert after(structured, list(THINK)).mask() is None
    through = after(structured, [*THINK, *ids_of("b c"), *DONE, *ids_of("ab")])
    assert allowed(through) == {EOS}
    direct = after(structured, ids_of("a"))
    assert {text_of([each]) for each in allowed(direct)} == {"a", "b"}


def test_while_reasoning_and_grammar_begin_alike_both_may_go_on() -> None:
    structured = StructuredOutputs(regex="<[xy]", think_begin=THINK, think_end=DONE)
    begun = after(structured, ids_of("<"))
    assert {text_of([each]) for each in allowed(begun)} == {"x", "y", "a"}
    begun.accept(*ids_of("x"))
    assert allowed(begun) == {EOS}


def test_reasoning_comes_once() -> None:
    structured = StructuredOutputs(regex="[a<>]+", think_begin=THINK, think_end=DONE)
    matcher = after(structured, [*THINK, *DONE, *THINK])
    assert allowed(matcher) == {*ids_of("a<>"), EOS}


def test_tokens_that_do_not_conform_are_told_and_not_repaired() -> None:
    matcher = after(AB, ids_of("ax"))
    with pytest.raises(CallerError, match="grammar"):
        matcher.mask()
    matcher.accept(*ids_of("b"))
    with pytest.raises(CallerError, match="grammar"):
        matcher.mask()


def test_an_end_in_the_middle_does_not_conform() -> None:
    matcher = after(AB, [*ids_of("a"), EOS])
    assert not matcher.done
    with pytest.raises(CallerError):
        matcher.mask()


class Stopwatch:
    """Each look at it takes as long as told."""

    def __init__(self, look_s: float) -> None:
        self.look_s = look_s
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.look_s
        return self.now_s


def masks_until_refused(look_s: float, most: int) -> int:
    structured = StructuredOutputs(regex="a*")
    clock = Stopwatch(look_s)
    matcher = Matcher(start_of(structured), structured, ENDINGS, VOCAB, clock)
    for number in range(most):
        try:
            matcher.mask()
        except CallerError:
            return number
        matcher.accept(*ids_of("a"))
    return most


def test_an_answer_whose_grammar_takes_too_long_ends() -> None:
    assert masks_until_refused(TOKEN_S / 2, 500) == 500
    assert masks_until_refused(TOKEN_S, 500) == pytest.approx(EXCESS_S / TOKEN_S, abs=3)
    assert masks_until_refused(10 * EXCESS_S, 500) == 0


def test_a_grammar_that_is_slower_at_every_token_is_given_up() -> None:
    ambiguous = StructuredOutputs(grammar='root ::= root root root | "a" | "aa" | ""')
    matcher = start(ambiguous)
    with pytest.raises(CallerError, match="too long"):
        follow(matcher, ids_of("a") * 3_000)
