import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_worker import chunk_of, token_at

from splitserve.errors import PeerError
from splitserve.ids import RequestId
from splitserve.protocol.generate import TokenChunk, TokenLogprob
from splitserve.router.handoff.stream import TokenStream


def drain(stream: TokenStream) -> list[TokenChunk]:
    chunks = []
    while (chunk := stream.take()) is not None:
        chunks.append(chunk)
    return chunks


def tokens(chunks: list[TokenChunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def test_early_tokens_wait_for_the_first() -> None:
    stream = TokenStream()
    stream.offer(chunk_of("r", 1))
    stream.offer(chunk_of("r", 2, finish="length"))
    assert stream.take() is None
    assert not stream.complete
    stream.offer(chunk_of("r", 0, cached=16))
    (chunk,) = drain(stream)
    assert chunk == TokenChunk(RequestId("r"), 0, (1000, 1001, 1002), "length", None, None, 16)
    assert stream.complete


def test_chunks_that_wait_for_the_reader_come_as_one_with_their_logprobs() -> None:
    stream = TokenStream()
    entries = [TokenLogprob(token_at(i), -0.5 * i, 1) for i in range(3)]
    for i, entry in enumerate(entries):
        stream.offer(
            TokenChunk(
                RequestId("r"), i, (token_at(i),), None, None, (entry,), 0 if i == 0 else None
            )
        )
    (chunk,) = drain(stream)
    assert chunk.token_ids == (1000, 1001, 1002)
    assert chunk.logprobs == tuple(entries)
    assert (chunk.index, chunk.cached_tokens) == (0, 0)


def test_cached_tokens_told_with_the_last_chunk_are_not_lost() -> None:
    stream = TokenStream()
    stream.offer(chunk_of("r", 0))
    stream.offer(chunk_of("r", 1, finish="stop", cached=32))
    (chunk,) = drain(stream)
    assert (chunk.token_ids, chunk.cached_tokens) == ((1000, 1001), 32)


def test_of_an_overlapping_chunk_only_the_new_part_is_taken() -> None:
    stream = TokenStream()
    stream.offer(chunk_of("r", 0, 2))
    logprobs = tuple(TokenLogprob(token_at(i), -1.0, i) for i in range(1, 4))
    stream.offer(TokenChunk(RequestId("r"), 1, (1001, 1002, 1003), None, None, logprobs))
    first, second = stream.take(), stream.take()
    assert first is not None
    assert second is None
    assert first.token_ids == (1000, 1001, 1002, 1003)
    assert stream.emitted == [1000, 1001, 1002, 1003]


def test_a_new_attempt_forgets_what_the_last_one_sent_early() -> None:
    stream = TokenStream()
    stream.offer(chunk_of("r", 0))
    stream.offer(TokenChunk(RequestId("r"), 2, (666,)))
    stream.restart()
    stream.offer(chunk_of("r", 1))
    stream.offer(chunk_of("r", 2, finish="stop"))
    assert tokens(drain(stream)) == [1000, 1001, 1002]


def test_an_error_comes_after_what_is_in_order() -> None:
    stream = TokenStream()
    stream.offer(chunk_of("r", 0))
    stream.fail(PeerError("gone"))
    assert tokens([stream.take()]) == [1000]  # type: ignore[list-item]
    with pytest.raises(PeerError, match="gone"):
        stream.take()


async def test_a_waiting_reader_gets_the_chunk_and_later_ones_wait_for_it() -> None:
    stream = TokenStream()
    news = stream.news()
    assert not news.done()
    for index in range(3):
        stream.offer(chunk_of("r", index))
    assert (await news) == chunk_of("r", 0)
    assert tokens(drain(stream)) == [1001, 1002]


async def test_a_waiting_reader_gets_the_error() -> None:
    stream = TokenStream()
    news = stream.news()
    stream.fail(PeerError("gone"))
    with pytest.raises(PeerError, match="gone"):
        await news


async def test_a_reader_that_was_cancelled_is_not_in_the_way() -> None:
    stream = TokenStream()
    stream.news().cancel()
    stream.offer(chunk_of("r", 0))
    stream.offer(chunk_of("r", 1))
    stream.fail(PeerError("gone"))
    assert stream.emitted == [1000, 1001]


@settings(max_examples=200, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 39), max_size=8, unique=True),
    doubled=st.lists(st.integers(0, 8), max_size=4),
    seed=st.integers(0, 2**32),
    read_every=st.integers(1, 5),
)
def test_any_order_cut_and_doubling_gives_the_same_answer_once(
    cuts: list[int], doubled: list[int], seed: int, read_every: int
) -> None:
    edges = [0, *sorted(cuts), 40]
    chunks = [
        chunk_of("r", a, b - a, finish="length" if b == 40 else None) for a, b in pairwise(edges)
    ]
    chunks += [chunks[i % len(chunks)] for i in doubled]
    random.Random(seed).shuffle(chunks)
    stream, got = TokenStream(), []
    for n, chunk in enumerate(chunks):
        stream.offer(chunk)
        if n % read_every == 0:
            got += drain(stream)
    got += drain(stream)
    assert tokens(got) == [token_at(i) for i in range(40)]
    assert [chunk.finish_reason for chunk in got].count("length") == 1
    assert got[-1].finish_reason == "length"
    position = 0
    for chunk in got:
        assert chunk.index == position
        position += len(chunk.token_ids)
