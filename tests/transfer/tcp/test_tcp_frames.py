"""What goes over a stream of connector tcp, how layers are cut into it."""

from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.transfer.base import TransferId
from splitserve.transfer.plan import Span
from splitserve.transfer.tcp.batches import EndQueue, Started, cut
from splitserve.transfer.tcp.frames import (
    HEADER_BYTES,
    MAX_PAYLOAD,
    MAX_PIECES,
    FrameError,
    Kind,
    encode,
    parse_header,
    parse_table,
)

POOL = 1 << 24
PIECES = st.lists(st.tuples(st.integers(0, POOL // 2), st.integers(1, 4096)), max_size=20)


@given(st.sampled_from(Kind), st.integers(0, 2**64 - 1), PIECES, st.booleans())
def test_a_frame_is_read_as_it_was_written(
    kind: Kind, number: int, pieces: list[tuple[int, int]], summed: bool
) -> None:
    nbytes = sum(size for _, size in pieces)
    made = encode(kind, number, pieces, nbytes, summed)
    header = parse_header(made[:HEADER_BYTES])
    told = header.kind, header.number, header.nbytes, header.summed
    assert told == (kind, number, nbytes, summed)
    assert len(made) == HEADER_BYTES + header.table_bytes
    assert parse_table(header, made[HEADER_BYTES:], POOL) == pieces


@given(PIECES.filter(bool), st.data())
def test_no_changed_bit_is_taken_for_another_frame(
    pieces: list[tuple[int, int]], data: st.DataObject
) -> None:
    made = bytearray(encode(Kind.PUT, 7, pieces, sum(size for _, size in pieces), summed=True))
    bit = data.draw(st.integers(0, 8 * len(made) - 1))
    made[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FrameError):
        parse_table(parse_header(made[:HEADER_BYTES]), made[HEADER_BYTES:], POOL)


SPANS = st.lists(
    st.builds(
        Span, st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.integers(1, 3 * MAX_PAYLOAD)
    ),
    max_size=8,
)


STREAMS = st.integers(1, 64)


@given(SPANS, st.booleans(), STREAMS)
def test_frames_carry_the_spans_and_nothing_else(
    spans: list[Span], reading: bool, streams: int
) -> None:
    frames = cut(spans, reading, streams)
    ranges: list[list[int]] = []
    for part in (part for frame in frames for part in frame):
        source, target = (part.theirs, part.own) if reading else (part.own, part.theirs)
        last = ranges[-1] if ranges else [0, 0, 0]
        whole = len(ranges) and last[2] == spans[len(ranges) - 1].nbytes
        if ranges and not whole:
            assert (source, target) == (last[0] + last[2], last[1] + last[2])
            last[2] += part.nbytes
        else:
            ranges.append([source, target, part.nbytes])
    assert ranges == [[span.source, span.target, span.nbytes] for span in spans]


@given(SPANS, st.integers(0, 600), STREAMS)
def test_no_frame_is_larger_than_may_be_sent(spans: list[Span], small: int, streams: int) -> None:
    for frame in cut([*spans, *[Span(0, 0, 1)] * small], reading=False, streams=streams):
        assert 1 <= len(frame) <= MAX_PIECES
        assert sum(part.nbytes for part in frame) <= MAX_PAYLOAD


@pytest.mark.parametrize(("nbytes", "sizes"), [(3 << 20, [3 << 19] * 2), (1 << 20, [1 << 20])])
def test_a_layer_that_is_large_enough_goes_by_all_streams(nbytes: int, sizes: list[int]) -> None:
    frames = cut([Span(0, 0, nbytes)], reading=False, streams=2)
    assert [sum(part.nbytes for part in frame) for frame in frames] == sizes


def test_a_transfer_ends_with_its_last_frame() -> None:
    told: EndQueue = SimpleQueue()
    started = Started(TransferId(3), 2, told)
    started.settle(10)
    assert told.empty()
    started.settle(5)
    event = told.get()
    assert (event.transfer, event.state, event.nbytes) == (3, "done", 15)


def test_a_transfer_with_a_lost_frame_fails_with_its_last_one_and_the_first_reason() -> None:
    told: EndQueue = SimpleQueue()
    started = Started(TransferId(3), 3, told)
    started.settle(0, "first")
    started.settle(0, "second")
    assert told.empty()
    started.settle(5)
    event = told.get()
    assert (event.state, event.nbytes, event.error) == ("failed", 0, "first")
