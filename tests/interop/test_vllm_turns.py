"""Conversations over a pair that goes both ways: prefill reads the last turn where decode keeps it,
if the new prompt goes on from it, and gets nothing silently wrong if not (vllm#43094)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from client import Stream, complete
from vllm_fleet import Fleet, VllmCluster, gateway, turn_fleet
from vllm_prompts import prompt

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NEW = 12
FIRST, MORE = 230, 100
"""Tokens of a first prompt, and what each turn adds: prefill itself computes what its own cache
lacks of a turn, if that is less than 64 tokens (vLLM's kv_recompute_threshold), and there are 128
in a block."""

KV_TOKEN_BYTES = 2 * 30 * 3 * 64 * 4


@pytest.fixture(scope="module")
def turning(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with turn_fleet(folder, tmp_path_factory.mktemp("turn")) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def talk(turning: Fleet) -> Iterator[VllmCluster]:
    addresses = {name: turning[name].address() for name in ("p0", "d0")}
    with gateway(turning.model, addresses) as cluster:
        yield cluster
    # No look at what decode holds: it keeps the last turn for a next one.


def test_each_turn_is_read_from_where_the_last_was_decoded(
    turning: Fleet, talk: VllmCluster
) -> None:
    ids, fell_back = prompt(FIRST, seed="turns"), talk.fallbacks
    ids += complete(talk, ids, NEW, ignore_eos=True)
    for turn in range(2):
        ids += prompt(MORE, seed=f"turn {turn}")
        before, continued = pulled(turning), talk.happened("turn_continued")
        answer = complete(talk, ids, NEW, ignore_eos=True)
        assert answer == turning["d0"].complete(ids, NEW, ignore_eos=True)
        assert talk.happened("turn_continued") == continued + 1
        assert pulled(turning) - before >= NEW * KV_TOKEN_BYTES
        ids += answer
    assert talk.fallbacks == fell_back


def test_a_stream_goes_on_from_a_kept_turn(turning: Fleet, talk: VllmCluster) -> None:
    ids = prompt(FIRST, seed="then streamed")
    ids += complete(talk, ids, NEW, ignore_eos=True) + prompt(MORE, seed="streamed")
    before = pulled(turning)
    stream = Stream(talk, ids, NEW, ignore_eos=True)
    stream.read_all()
    assert stream.error is None
    assert stream.tokens == turning["d0"].complete(ids, NEW, ignore_eos=True)
    assert pulled(turning) > before


def test_a_turn_that_a_stop_token_ended_is_gone_on_from(turning: Fleet, talk: VllmCluster) -> None:
    """vLLM may have begun the next step by then."""
    ids = prompt(FIRST, seed="stopped")
    drawn = {"temperature": 1.0, "seed": 3, "ignore_eos": True}
    answer = complete(talk, ids, NEW, **drawn)
    at = max(answer.index(token) for token in answer[:-1])
    complete(talk, ids, NEW, stop_token_ids=[answer[at]], **drawn)
    ids += answer[: at + 1] + prompt(MORE, seed="after the stop")
    before, continued = pulled(turning), talk.happened("turn_continued")
    expected = turning["d0"].complete(ids, NEW, ignore_eos=True)
    assert complete(talk, ids, NEW, ignore_eos=True) == expected
    assert talk.happened("turn_continued") == continued + 1
    assert pulled(turning) > before


@pytest.mark.parametrize("change", ["edited", "stripped", "shortened"])
def test_another_history_is_computed(turning: Fleet, talk: VllmCluster, change: str) -> None:
    ids, kept = prompt(FIRST, seed=change), talk.happened("turn_kept")
    answer = complete(talk, ids, NEW, ignore_eos=True)
    assert talk.happened("turn_kept") == kept + 1
    more = prompt(MORE, seed="other history")
    history = {
        "edited": [*ids[:150], 7, *ids[151:], *answer, *more],
        "stripped": [*ids, *answer[5:], *more],
        "shortened": [*ids, *answer[:-1]],
    }[change]
    before, continued = pulled(turning), talk.happened("turn_continued")
    expected = turning["d0"].complete(history, NEW, ignore_eos=True)
    assert complete(talk, history, NEW, ignore_eos=True) == expected
    assert pulled(turning) == before
    assert talk.happened("turn_continued") == continued


def pulled(turning: Fleet) -> float:
    """Bytes that prefill has read from decode."""
    turning["p0"].nudge()
    return turning["p0"].total("vllm:nixl_bytes_transferred_sum")
