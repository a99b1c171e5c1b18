"""How the events of a stream are counted, and what its end is called."""

import pytest

from splitserve.lab.load.record import Counting, Outcome
from splitserve.lab.load.wire.answer import Answer, digest_of, error_text, outcome_of
from splitserve.lab.load.wire.sse import SseParser
from splitserve.lab.mock.case import DONE, chat, completion, event, total


def read(*timed: tuple[float, bytes]) -> Answer:
    parser, answer = SseParser(), Answer()
    for t_s, data in timed:
        for one in parser.feed(t_s, data):
            answer.read(one)
    return answer


def test_tokens_are_counted_by_ids_not_by_chunks() -> None:
    answer = read(
        (0.1, event(completion("a", 1))),
        (0.2, event(completion("bcde", 4))),
        (0.3, event(completion("fghi", 4, "stop"))),
        (0.31, total(9)),
        (0.32, DONE),
    )
    assert answer.events == [(0.1, 1), (0.2, 4), (0.3, 4), (0.31, 0), (0.32, 0)]
    assert (answer.counting, outcome_of(answer, 9)) == (Counting.IDS, Outcome.OK)


def test_running_usage_counts_where_there_are_no_ids() -> None:
    answer = read(
        (0.1, event(completion("", usage=0))),
        (0.2, event(completion("ab", usage=2))),
        (0.3, event(completion("", usage=3, finish="stop"))),
        (0.4, total(3)),
    )
    assert answer.events == [(0.1, 0), (0.2, 2), (0.3, 1), (0.4, 0)]
    assert (answer.counting, outcome_of(answer, None)) == (Counting.USAGE, Outcome.OK)


def test_a_total_on_the_last_chunk_is_not_that_chunk_s() -> None:
    answer = read(
        (0.1, event(completion("abc"))), (0.2, event(completion("d", finish="stop", usage=50)))
    )
    assert answer.events == [(0.1, 1), (0.2, 1)]
    assert outcome_of(answer, None) is Outcome.COUNT_MISMATCH


def test_time_of_the_first_answer_token_is_apart_from_that_of_the_first_token() -> None:
    answer = read(
        (0.05, event(chat({"role": "assistant", "content": ""}))),
        (0.12, event(chat({"reasoning_content": "hm"}))),
        (0.9, event(chat({"content": "a"}))),
    )
    assert answer.events == [(0.05, 0), (0.12, 1), (0.9, 1)]
    assert answer.answer_s == 0.9


def test_text_goes_into_the_digest_blanks_and_all() -> None:
    parts = b"data:", b' {"choices":[{"text":"a', b' b","finish_reason":"stop"}]}\n\n'
    answer = read(*((float(at), part) for at, part in enumerate(parts)))
    assert answer.digest == digest_of("a b") != digest_of("ab")


def test_prompt_and_cached_tokens_and_the_server_s_own_times_are_kept() -> None:
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    metrics = {"queue_time_ms": 1.5, "mean_itl_ms": None}
    answer = read((0.0, event({"id": "x", "choices": [], "usage": usage, "metrics": metrics})))
    assert (answer.prompt_tokens, answer.cached_tokens, answer.served_id) == (7, 4, "x")
    assert answer.metrics == {"queue_time_ms": 1.5}


def test_who_served_is_told_apart_from_numbers() -> None:
    metrics = {
        "kv_handoff_ms": 2,
        "first_token_after_handoff": False,
        "prefill_worker": "p0",
        "fallbacks": {"recompute: prefill_lost": 1},
        "speculative_decoding": None,
    }
    answer = read((0.0, event({"choices": [], "metrics": metrics})))
    assert answer.metrics == {
        "kv_handoff_ms": 2.0,
        "first_token_after_handoff": 0.0,
        "fallbacks.recompute: prefill_lost": 1.0,
    }
    assert answer.workers == {"prefill_worker": "p0"}


@pytest.mark.parametrize(
    "data",
    [
        event({"error": {"message": "no"}}),
        event({"error": "no"}),
        event({"object": "error", "message": "no"}),
        b"event: error\ndata: no\n\n",
    ],
    ids=["object", "text", "flat", "named"],
)
def test_an_error_inside_the_stream_is_no_success_in_any_form(data: bytes) -> None:
    answer = read((0.0, event(completion("a", 1, "stop"))), (0.1, data), (0.2, total(1)))
    assert (outcome_of(answer, None), answer.error) == (Outcome.INBAND_ERROR, "no")
    assert answer.output_tokens is None


@pytest.mark.parametrize(
    ("pieces", "forced", "outcome"),
    [
        ([event(completion("a", 1, "stop")), total(1)], 1, Outcome.OK),
        ([event(completion("a", 1, "stop")), total(1)], 2, Outcome.SHORT),
        ([event(completion("a", 1, "stop"))], None, Outcome.NO_USAGE),
        ([event(completion("a", 1, "stop"))], 2, Outcome.SHORT),
        ([event(completion("a", finish="stop"))], 2, Outcome.NO_USAGE),
        ([event(completion("a", 1, "stop")), total(2)], None, Outcome.COUNT_MISMATCH),
        ([event(completion("a", 1)), DONE], None, Outcome.TRUNCATED),
        ([b"data: {]\n\n"], None, Outcome.BAD_STREAM),
        ([b'data: {"choices":[{"text":5}]}\n\n'], None, Outcome.BAD_STREAM),
        ([], None, Outcome.TRUNCATED),
    ],
    ids=[
        "ok",
        "short",
        "no-usage",
        "short-by-ids",
        "short-unknown",
        "mismatch",
        "no-finish",
        "no-json",
        "no-chunk",
        "nothing",
    ],
)
def test_the_end_has_one_name(pieces: list[bytes], forced: int | None, outcome: Outcome) -> None:
    assert outcome_of(read(*((0.0, piece) for piece in pieces)), forced) is outcome


def test_error_text_falls_back_on_the_body() -> None:
    assert error_text(b"<html>") == "<html>"
    assert error_text(b"") == "an error without a text"
    assert error_text(b'{"detail": [1]}') == '{"detail": [1]}'
