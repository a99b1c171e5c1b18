"""Cases on what a stream says: which events carry tokens, how many, and of which kind."""

from collections.abc import Sequence
from dataclasses import replace

from splitserve.lab.load.record import Counting, Outcome
from splitserve.lab.mock.case import (
    DONE,
    Case,
    Piece,
    chat,
    completion,
    event,
    script_of,
    told,
    total,
)

_ROLE = event(chat({"role": "assistant", "content": ""}))


def _case(
    name: str, pieces: Sequence[Piece], text: str, output_tokens: int | None, finish: str = "stop"
) -> Case:
    script = script_of([data for data, _ in pieces])
    return replace(
        told(name, pieces, script, Outcome.OK if output_tokens else Outcome.NO_USAGE),
        text=text,
        output_tokens=output_tokens,
        finish_reason=finish,
    )


def _chat_word(text: str, ids: int | None = 1, finish: str | None = None) -> Piece:
    return event(chat({"content": text}, ids, finish)), 1 if ids is None else ids


def _role() -> Case:
    pieces = [(_ROLE, 0), _chat_word("a"), _chat_word("b", finish="stop"), (total(2), 0), (DONE, 0)]
    return _case("role chunk", pieces, "ab", 2)


def _empty() -> Case:
    """Neither an empty text nor no choice at all is a token."""
    empty = event(chat({"content": ""}))
    no_choice = event({"id": "x", "choices": []})
    pieces = [
        (empty, 0), _chat_word("a"), (no_choice, 0), (empty, 0), _chat_word("b", finish="stop"),
        (total(2), 0), (DONE, 0),
    ]  # fmt: skip
    return _case("empty chunks", pieces, "ab", 2)


def _held_back() -> Case:
    """A token whose text waits for the rest of its character is a token all the same."""
    pieces = [
        (event(completion("", 1)), 1),
        (event(completion("\u00e9", 1, "stop")), 1),
        (total(2), 0),
        (DONE, 0),
    ]
    # The first token with a text is the second one.
    return replace(_case("token without text", pieces, "\u00e9", 2), answer=2)


def _several_tokens() -> Case:
    pieces = [
        (event(completion("a", 1)), 1),
        (event(completion("bcde", 4)), 4),
        (event(completion("fghi", 4, "stop")), 4),
        (total(9), 0),
        (DONE, 0),
    ]
    return _case("several tokens in one event", pieces, "abcdefghi", 9)


def _reasoning(field: str) -> Case:
    pieces = [
        (_ROLE, 0),
        (event(chat({field: "hm"}, 1)), 1),
        (event(chat({field: "so"}, 1)), 1),
        _chat_word("a", finish="stop"),
        (total(3), 0),
        (DONE, 0),
    ]
    return replace(_case(f"reasoning as {field}", pieces, "hmsoa", 3), answer=4)


def _only_reasoning() -> Case:
    pieces = [
        (_ROLE, 0), (event(chat({"reasoning": "hm"}, 1, "length")), 1), (total(1), 0), (DONE, 0)
    ]  # fmt: skip
    return replace(_case("reasoning only", pieces, "hm", 1, "length"), answer=None)


def _tools() -> Case:
    def call(**function: str) -> dict[str, object]:
        return {"tool_calls": [{"index": 0, "function": function}]}

    pieces = [
        (_ROLE, 0),
        (event(chat(call(name="f"))), 1),
        (event(chat(call(arguments='{"x"'))), 1),
        (event(chat(call(arguments=":1}"))), 1),
        (event(chat({}, None, "tool_calls")), 0),
        (total(3), 0),
        (DONE, 0),
    ]
    case = _case("tool call", pieces, 'f{"x":1}', 3, "tool_calls")
    return replace(case, counting=Counting.EVENTS)


def _running_usage() -> Case:
    pieces = [
        (event(completion("ab", usage=2)), 2),
        (event(completion("", usage=3)), 1),
        (event(completion("cde", usage=6, finish="stop")), 3),
        (total(6), 0),
        (DONE, 0),
    ]
    return replace(_case("running usage", pieces, "abcde", 6), counting=Counting.USAGE)


def _no_usage() -> Case:
    pieces = [(event(completion("a", 1)), 1), (event(completion("b", 1, "stop")), 1), (DONE, 0)]
    return _case("no usage", pieces, "ab", None)


def _usage_at_the_end() -> Case:
    """Texts are one token each, as the usage confirms."""
    pieces = [_chat_word("a", None), _chat_word("b", None, "stop"), (total(2), 0), (DONE, 0)]
    return replace(_case("usage only", pieces, "ab", 2), counting=Counting.EVENTS)


def _usage_with_the_last() -> Case:
    """A total that comes with the last text does not belong to that text."""
    last = event(completion("b", finish="stop", usage=9))
    pieces = [(event(completion("a")), 1), (last, 1), (DONE, 0)]
    return replace(
        _case("total with the last text", pieces, "ab", 9),
        outcome=Outcome.COUNT_MISMATCH,
        counting=Counting.EVENTS,
    )


def _mismatch() -> Case:
    pieces = [(event(completion("a", 1, "stop")), 1), (total(3), 0), (DONE, 0)]
    return replace(_case("usage of other count", pieces, "a", 3), outcome=Outcome.COUNT_MISMATCH)


def _short() -> Case:
    pieces = [(event(completion("a", 1, "stop")), 1), (total(1), 0), (DONE, 0)]
    return replace(
        _case("shorter than forced", pieces, "a", 1), outcome=Outcome.SHORT, forced_tokens=4
    )


def _two_finishes() -> Case:
    pieces = [
        (event(completion("a", 1, "length")), 1),
        (event(completion("", 0, "stop")), 0),
        (total(1), 0),
        (DONE, 0),
    ]
    return _case("two finish reasons", pieces, "a", 1, "length")


def _after_the_end() -> Case:
    """Nothing after [DONE] belongs to the answer."""
    pieces = [
        (event(completion("a", 1, "stop")), 1),
        (total(1) + DONE + event(completion("b", 1)), 0),
    ]
    return _case("text after [DONE]", pieces, "a", 1)


def content_cases() -> list[Case]:
    """One case per kind of content."""
    return [
        _role(),
        _empty(),
        _held_back(),
        _several_tokens(),
        _reasoning("reasoning"),
        _reasoning("reasoning_content"),
        _only_reasoning(),
        _tools(),
        _running_usage(),
        _no_usage(),
        _usage_at_the_end(),
        _usage_with_the_last(),
        _mismatch(),
        _short(),
        _two_finishes(),
        _after_the_end(),
    ]
