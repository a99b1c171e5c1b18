"""Who does not know the secret gets nowhere, however the bytes are cut."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.protocol.handshake import (
    GREETING,
    NONCE_BYTES,
    PROOF_BYTES,
    ListenerSide,
    OpenerSide,
    Refused,
    Side,
)

SECRET = b"a secret that both ends know"
NONCE_L, NONCE_O = b"l" * NONCE_BYTES, b"o" * NONCE_BYTES


def fed(side: Side, data: bytes, cuts: Sequence[int] = ()) -> bytes:
    """What ``side`` answers to ``data`` that arrives in pieces."""
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    return b"".join(side.feed(data[begin:end]) for begin, end in pairwise(edges))


def sides(listeners: bytes = SECRET, openers: bytes = SECRET) -> tuple[ListenerSide, OpenerSide]:
    return ListenerSide(listeners, NONCE_L), OpenerSide(openers, NONCE_O)


@given(st.lists(st.integers(0, 100)), st.lists(st.integers(0, 100)), st.lists(st.integers(0, 100)))
def test_two_that_know_the_secret_find_each_other_however_bytes_are_cut(
    first: list[int], second: list[int], third: list[int]
) -> None:
    listener, opener = sides()
    assert opener.start() == b""
    proof = fed(opener, listener.start(), first)
    assert not opener.done
    answer = fed(listener, proof, second)
    assert listener.done
    assert fed(opener, answer, third) == b""
    assert opener.done
    assert (listener.rest, opener.rest) == (b"", b"")


def test_no_message_of_a_handshake_is_long() -> None:
    listener, opener = sides()
    greeting = listener.start()
    proof = opener.feed(greeting)
    assert sum(map(len, (greeting, proof, listener.feed(proof)))) < 1024


@given(st.binary(min_size=1, max_size=40))
def test_an_opener_with_another_secret_is_refused_and_learns_nothing(other: bytes) -> None:
    listener, opener = sides(openers=SECRET + other)
    proof = opener.feed(listener.start())
    with pytest.raises(Refused):
        listener.feed(proof)
    assert not listener.done


@given(st.binary(min_size=1, max_size=40))
def test_a_listener_with_another_secret_is_refused(other: bytes) -> None:
    impostor = ListenerSide(SECRET + other, NONCE_L)
    opener = OpenerSide(SECRET, NONCE_O)
    proof = opener.feed(impostor.start())
    with pytest.raises(Refused):
        impostor.feed(proof)
    with pytest.raises(Refused):
        opener.feed(bytes(PROOF_BYTES))
    assert not opener.done


def test_an_answer_heard_before_is_worth_nothing() -> None:
    listener, opener = sides()
    heard = opener.feed(listener.start())
    listener.feed(heard)
    with pytest.raises(Refused):
        ListenerSide(SECRET, b"m" * NONCE_BYTES).feed(heard)


def test_a_listeners_answer_heard_before_is_worth_nothing() -> None:
    listener, opener = sides()
    heard = listener.feed(opener.feed(listener.start()))
    another = OpenerSide(SECRET, b"p" * NONCE_BYTES)
    another.feed(listener.start())
    with pytest.raises(Refused):
        another.feed(heard)


def test_a_proof_sent_back_to_its_maker_is_refused() -> None:
    """A listener that knows no secret mirrors what it gets, nonce and all."""
    opener = OpenerSide(SECRET, NONCE_O)
    mirrored = opener.feed(GREETING + NONCE_O)[NONCE_BYTES:]
    with pytest.raises(Refused):
        opener.feed(mirrored)


@given(st.data())
def test_any_changed_byte_is_refused(data: st.DataObject) -> None:
    listener, opener = sides()
    proof = bytearray(opener.feed(listener.start()))
    proof[data.draw(st.integers(0, len(proof) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Refused):
        listener.feed(bytes(proof))


@given(st.lists(st.binary(max_size=100), max_size=30))
def test_a_listener_reads_little_and_is_never_convinced_by_noise(pieces: list[bytes]) -> None:
    listener, read = sides()[0], 0
    for piece in pieces:
        read += len(piece)
        try:
            assert listener.feed(piece) == b""
        except Refused:
            break
        assert read < NONCE_BYTES + PROOF_BYTES
    assert not listener.done


@given(st.lists(st.binary(max_size=100), max_size=30))
def test_an_opener_reads_little_and_is_never_convinced_by_noise(pieces: list[bytes]) -> None:
    opener, read = sides()[1], 0
    opener.feed(GREETING + NONCE_L)
    for piece in pieces:
        read += len(piece)
        try:
            assert opener.feed(piece) == b""
        except Refused:
            break
        assert read < PROOF_BYTES
    assert not opener.done


def test_frames_before_the_end_of_the_handshake_are_refused() -> None:
    listener, opener = sides()
    proof = opener.feed(listener.start())
    with pytest.raises(Refused, match="something else"):
        listener.feed(proof + b"\x00\x00\x00\x02\x01\x80")


def test_what_follows_the_listeners_proof_is_kept() -> None:
    listener, opener = sides()
    answer = listener.feed(opener.feed(listener.start()))
    opener.feed(answer + b"frame")
    assert (opener.done, opener.rest) == (True, b"frame")


def test_a_service_that_is_no_worker_is_told_apart_at_its_first_bytes() -> None:
    with pytest.raises(Refused, match="no worker"):
        OpenerSide(SECRET, NONCE_O).feed(b"HTTP/1.1 400 ")
