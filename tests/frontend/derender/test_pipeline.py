"""However the tokens are cut into chunks, the answer is the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.samples import byte_level_inner
from frontend.scripted import chunks
from splitserve.errors import PeerError
from splitserve.frontend.derender.answer import Answer
from splitserve.frontend.derender.events import Delta, Finish
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.pipeline import Derenderer
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.ids import RequestId
from splitserve.protocol.generate import TokenChunk, TokenLogprob

TOKENIZER = Tokenizer(byte_level_inner())
TEXT = "The lazy dog, alpha beta gamma: 한국어 👍 <|im_end|> naïve ta ga."
IDS = list(TOKENIZER.encode_prompt(TEXT))
LOGPROBS = [
    TokenLogprob(token_id, -0.1 * place, 1, ((token_id, -0.1 * place), (place, -9.0 - place)))
    for place, token_id in enumerate(IDS)
]


def derender(options: AnswerOptions, pieces: list[TokenChunk], *, echo: str = "") -> list[Delta]:
    derenderer = Derenderer(TOKENIZER, options, echo=echo)
    deltas: list[Delta] = []
    for piece in pieces:
        deltas.append(derenderer.feed(piece))
        if derenderer.finish is not None:
            break
    return deltas


def folded(deltas: list[Delta]) -> tuple[object, ...]:
    answer = Answer()
    for delta in deltas:
        answer.add(delta)
    return answer.text, answer.token_ids, answer.scored, answer.finish


OPTIONS = st.builds(
    AnswerOptions,
    stop=st.sampled_from([(), ("ta ga",), ("zz", "g"), ("ZZZZZZZZ",), ("한국", "국어")]),
    include_stop=st.booleans(),
    skip_special_tokens=st.booleans(),
    min_tokens=st.integers(0, 20),
    logprobs=st.booleans(),
)


@given(st.lists(st.integers(1, 7), max_size=40), OPTIONS, st.sampled_from(["stop", "length"]))
@settings(max_examples=300, deadline=None)
def test_chunking_never_changes_the_answer(
    sizes: list[int], options: AnswerOptions, finish: str
) -> None:
    one_by_one = derender(options, list(chunks(IDS, finish=finish, logprobs=LOGPROBS)))
    cut = derender(options, list(chunks(IDS, finish=finish, logprobs=LOGPROBS, sizes=sizes)))
    assert folded(cut) == folded(one_by_one)


@pytest.mark.parametrize("length", range(1, 21))
def test_a_stop_string_that_never_comes_changes_nothing(length: int) -> None:
    plain = derender(AnswerOptions(logprobs=True), list(chunks(IDS, logprobs=LOGPROBS)))
    options = AnswerOptions(stop=("Z" * length,), logprobs=True)
    assert folded(derender(options, list(chunks(IDS, logprobs=LOGPROBS)))) == folded(plain)


def test_a_stop_string_ends_text_and_token_count_alike() -> None:
    derenderer = Derenderer(TOKENIZER, AnswerOptions(stop=("lazy",)))
    whole = TokenChunk(RequestId("r"), 0, tuple(IDS), "length")
    delta = derenderer.feed(whole)
    assert delta.text == "The "
    assert delta.finish == Finish("stop", "lazy")
    assert derenderer.stopped_by_text
    assert derenderer.tokens == len(delta.token_ids) < len(IDS)
    assert TOKENIZER.decode(delta.token_ids, skip_special=True).startswith("The lazy")


def test_stop_strings_cannot_match_before_min_tokens() -> None:
    ids = TOKENIZER.encode_prompt("dog dog dog")
    first = len(TOKENIZER.encode_prompt("dog"))
    options = AnswerOptions(stop=("dog",), min_tokens=first)
    assert folded(derender(options, list(chunks(ids))))[0] == "dog "


def test_the_token_that_ended_the_answer_is_counted_but_not_shown() -> None:
    ids = [*TOKENIZER.encode_prompt("yes"), *TOKENIZER.encode_prompt("!")]
    ended = list(chunks(ids, finish="stop", stop_reason=ids[-1]))
    hidden = derender(AnswerOptions(), ended)
    assert folded(hidden) == ("yes", ids, None, Finish("stop", ids[-1]))
    shown = derender(AnswerOptions(include_stop=True), ended)
    assert folded(shown)[0] == "yes!"


def test_echo_comes_before_the_first_text() -> None:
    deltas = derender(AnswerOptions(stop=("Q",)), list(chunks(IDS[:2])), echo="Quick: ")
    assert folded(deltas)[0] == "Quick: " + TOKENIZER.decode(IDS[:2], skip_special=True)


def test_every_token_keeps_its_own_alternatives() -> None:
    deltas = derender(AnswerOptions(logprobs=True), list(chunks(IDS, logprobs=LOGPROBS, sizes=[3])))
    scored = deltas[0].scored
    assert scored is not None
    assert [token.top for token in scored] == [entry.top for entry in LOGPROBS[:3]]


def test_offsets_point_into_the_answers_text() -> None:
    options = AnswerOptions(logprobs=True)
    deltas = derender(options, list(chunks(IDS, logprobs=LOGPROBS)), echo="한: ")
    text = folded(deltas)[0]
    assert isinstance(text, str)
    for delta in deltas:
        assert delta.scored is not None
        token = delta.scored[0]
        raw = TOKENIZER.token_bytes(token.token_id)
        if raw.isascii() and token.token_id not in TOKENIZER.special_ids:
            assert text[token.offset :].startswith(raw.decode())


@pytest.mark.parametrize(
    "second",
    [
        TokenChunk(RequestId("r"), 2, (1,)),
        TokenChunk(RequestId("r"), 0, (1,)),
        TokenChunk(RequestId("r"), 1, (1,), "abort"),
    ],
)
def test_a_hole_or_an_abort_is_an_error_and_no_answer(second: TokenChunk) -> None:
    derenderer = Derenderer(TOKENIZER, AnswerOptions())
    derenderer.feed(TokenChunk(RequestId("r"), 0, (1,)))
    with pytest.raises(PeerError):
        derenderer.feed(second)


def test_missing_logprobs_are_an_error() -> None:
    derenderer = Derenderer(TOKENIZER, AnswerOptions(logprobs=True))
    with pytest.raises(PeerError, match="log-probabilities"):
        derenderer.feed(TokenChunk(RequestId("r"), 0, (1,)))


def test_nothing_may_follow_the_end() -> None:
    derenderer = Derenderer(TOKENIZER, AnswerOptions())
    derenderer.feed(TokenChunk(RequestId("r"), 0, (1,), "length"))
    with pytest.raises(PeerError):
        derenderer.feed(TokenChunk(RequestId("r"), 1, (1,)))
