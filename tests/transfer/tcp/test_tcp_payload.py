"""A payload and its checksum over a real socket."""

import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tcp_pools import PATIENT_S

from splitserve.transfer.tcp.frames import MAX_PAYLOAD
from splitserve.transfer.tcp.payload import STEP, SUM_BYTES, receive_payload, send_frame
from splitserve.transfer.tcp.wire import Wire

HEAD = b"head"


class Pair:
    """Two ends of one connection. What is sent is small enough to lie in it, or another thread
    takes it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.near = socket.create_connection(listener.getsockname())
            self.far, _ = listener.accept()
        self.sender, self.receiver = Wire(self.near, PATIENT_S), Wire(self.far, PATIENT_S)

    def sent(self, payload: bytes, cuts: list[int]) -> bytes:
        """What passes when ``payload`` is sent in pieces that begin at ``cuts``."""
        whole = len(HEAD) + len(payload) + SUM_BYTES
        with ThreadPoolExecutor(1) as pool:
            passed = pool.submit(self.far.recv, whole, socket.MSG_WAITALL)
            send_frame(self.sender, HEAD, pieces(payload, cuts), summed=True)
            return passed.result()

    def arrives(self, passed: bytes, cuts: list[int]) -> tuple[bool, bytes]:
        """What is made of ``passed``, payload and checksum."""
        memory = bytearray(len(passed) - SUM_BYTES)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(self.near.sendall, passed)
            whole = receive_payload(self.receiver, pieces(memory, cuts), summed=True)
            sending.result()
        return whole, bytes(memory)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def pieces(data: bytes | bytearray, cuts: list[int]) -> list[memoryview]:
    at = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    view = memoryview(data)
    return [view[start:end] for start, end in pairwise(at) if end > start]


CUTS = st.lists(st.integers(0, 1 << 30), max_size=9)


@given(st.binary(min_size=1, max_size=5000), CUTS, CUTS)
def test_a_payload_is_whole_however_its_ends_cut_it(
    pair: Pair, data: bytes, sent: list[int], taken: list[int]
) -> None:
    passed = pair.sent(data, sent)
    assert passed[: len(HEAD)] == HEAD
    assert pair.arrives(passed[len(HEAD) :], taken) == (True, data)


@given(st.binary(min_size=1, max_size=5000), st.data())
def test_a_changed_bit_of_payload_or_checksum_is_noticed(
    pair: Pair, data: bytes, draw: st.DataObject
) -> None:
    passed = bytearray(pair.sent(data, [])[len(HEAD) :])
    bit = draw.draw(st.integers(0, 8 * len(passed) - 1))
    passed[bit // 8] ^= 1 << bit % 8
    whole, _ = pair.arrives(bytes(passed), [])
    assert not whole


@pytest.mark.parametrize("nbytes", [STEP - 1, STEP, STEP + 1, 2 * STEP - 1, MAX_PAYLOAD])
def test_a_payload_of_several_steps_is_whole_and_its_parts_may_not_change_places(
    pair: Pair, nbytes: int
) -> None:
    data = random.Random(nbytes).randbytes(nbytes)
    passed = pair.sent(data, [nbytes // 3])[len(HEAD) :]
    assert pair.arrives(passed, [STEP]) == (True, data)
    swapped = passed[4096:8192] + passed[:4096] + passed[8192:]
    assert pair.arrives(swapped, []) == (False, swapped[:nbytes])


def test_without_a_checksum_only_the_payload_passes(pair: Pair) -> None:
    send_frame(pair.sender, HEAD, [memoryview(b"payload")], summed=False)
    pair.near.sendall(b"next")
    assert pair.far.recv(len(HEAD), socket.MSG_WAITALL) == HEAD
    memory = memoryview(bytearray(7))
    assert receive_payload(pair.receiver, [memory], summed=False)
    assert memory == b"payload"
    assert pair.far.recv(4, socket.MSG_WAITALL) == b"next"
