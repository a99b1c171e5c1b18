"""The event-stream rules, on bytes."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.lab.load.wire.sse import SseEvent, SseParser


def parse(*reads: bytes, end: bool = True) -> list[SseEvent]:
    parser = SseParser()
    events = [event for at, read in enumerate(reads) for event in parser.feed(float(at), read)]
    return events + (parser.finish() if end else [])


def datas(*reads: bytes) -> list[bytes | None]:
    return [event.data for event in parse(*reads)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_every_line_end_ends_a_line(end: bytes) -> None:
    assert datas(b"data: a" + end + end + b"data: b" + end + end) == [b"a", b"b"]


def test_only_one_blank_after_the_colon_is_taken_away() -> None:
    assert datas(b"data:a\n\ndata: b\n\ndata:  c \n\n") == [b"a", b"b", b" c "]


def test_several_data_lines_are_one_event() -> None:
    assert datas(b"data: a\ndata:\ndata: b\n\n") == [b"a\n\nb"]


def test_a_comment_is_an_event_without_data() -> None:
    assert datas(b": keep-alive\n\ndata: a\n\n:\n") == [None, b"a", None]


def test_the_name_belongs_to_its_event_only() -> None:
    events = parse(b"event: error\ndata: a\n\ndata: b\n\nevent: lost\n\ndata: c\n\n")
    assert [(event.data, event.name) for event in events] == [
        (b"a", "error"),
        (b"b", ""),
        (b"c", ""),
    ]


def test_other_fields_are_passed_over() -> None:
    assert datas(b"id: 1\nretry: 5\nx: y\nlonely\ndata: a\n\n") == [b"a"]


def test_a_byte_order_mark_leads_at_most_once() -> None:
    mark = b"\xef\xbb\xbf"
    assert datas(mark[:1], mark[1:] + b"data: a\n\n" + mark + b"data: b\n\n") == [b"a"]


def test_line_separators_of_unicode_are_text() -> None:
    text = "x\u2028y\u2029z\u0085".encode()
    assert datas(b"data: " + text + b"\n\n") == [text]


def test_the_stream_s_end_completes_an_event() -> None:
    assert datas(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert datas(b"data: a\n\ndata: b\n") == [b"a", b"b"]


def test_an_event_has_the_time_of_its_last_byte() -> None:
    events = parse(b"data: a\n", b"\n", b"data: b\r", b"\n\r", b"\n", b"data: c", b"", b"\n\n")
    assert [(event.data, event.t_s) for event in events] == [(b"a", 1), (b"b", 3), (b"c", 7)]


def test_an_event_cut_off_by_the_end_has_the_time_of_its_last_read() -> None:
    assert parse(b"data: a\n\n", b"data: b") == [SseEvent(0, b"a"), SseEvent(1, b"b")]


STREAM = b'data: {"t":"a b"}\r\n\r\n: hi\n\nevent: e\rdata: \xc3\xa9\r\rdata:x\ndata: y\n\n'


def test_every_split_into_two_or_three_reads_gives_the_same_events() -> None:
    whole = [(event.data, event.name) for event in parse(STREAM)]
    assert len(whole) == 4
    for first, second in combinations(range(len(STREAM) + 1), 2):
        reads = STREAM[:first], STREAM[first:second], STREAM[second:]
        assert [(event.data, event.name) for event in parse(*reads)] == whole


_ALPHABET = st.sampled_from([b"\r", b"\n", b":", b" ", b"data", b"data:", b"event:", b"x", b"\xff"])


@given(st.lists(_ALPHABET, max_size=30), st.data())
def test_no_split_of_any_bytes_changes_the_events(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    edges = [0, *cuts, len(stream)]
    reads = [stream[a:b] for a, b in pairwise(edges)]
    assert datas(*reads) == datas(stream)
