"""Connector tcp over real sockets, with owners that fail in every way a peer can."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tcp_pools import (
    ALL,
    LAYER,
    LAYOUT,
    PATIENT_S,
    STALL_S,
    HostMemory,
    ScriptedOwner,
    Stream,
    connected,
    ends,
    kv_threads,
    summed,
)

from splitserve.errors import TransferFailed
from splitserve.transfer.connectors.tcp import TcpConnector
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.plan import Span
from splitserve.transfer.tcp.frames import Kind, encode
from splitserve.transfer.tcp.sender import WINDOW

Script = Callable[[Stream], None]


def answer(stream: Stream, kind: Kind, number: int) -> None:
    stream.sock.sendall(encode(kind, number))


def data(stream: Stream, number: int, sent: bytes, told: bytes | None = None) -> None:
    """Answers a read with ``sent``, under the checksum of ``told``."""
    head = encode(Kind.DATA, number, (), len(sent), summed=True)
    stream.sock.sendall(head + summed(sent, told))


def dies_before_the_payload(stream: Stream) -> None:
    stream.next()


def dies_in_the_payload(stream: Stream) -> None:
    stream.next()
    stream.take(LAYER // 2)


def takes_all_and_says_nothing(stream: Stream) -> None:
    stream.until_closed()


def closes_its_own_half(stream: Stream) -> None:
    stream.sock.shutdown(socket.SHUT_WR)
    stream.until_closed()


def answers_garbage(stream: Stream) -> None:
    stream.put()
    stream.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 8)
    stream.until_closed()


def answers_another_frame(stream: Stream) -> None:
    asked, _ = stream.put()
    answer(stream, Kind.OK, asked.header.number + 1)
    stream.until_closed()


def answers_a_write_with_data(stream: Stream) -> None:
    asked, _ = stream.put()
    data(stream, asked.header.number, bytes(8))
    stream.until_closed()


def answers_with_a_changed_header(stream: Stream) -> None:
    asked, _ = stream.put()
    changed = bytearray(encode(Kind.BAD, asked.header.number))
    changed[4] = Kind.OK
    stream.sock.sendall(changed)
    stream.until_closed()


def finds_damage_every_time(stream: Stream) -> None:
    for _ in range(2):
        asked, _ = stream.put()
        answer(stream, Kind.BAD, asked.header.number)
    assert stream.until_closed() == 0


@pytest.mark.parametrize(
    "script",
    [
        dies_before_the_payload,
        dies_in_the_payload,
        takes_all_and_says_nothing,
        closes_its_own_half,
        answers_garbage,
        answers_another_frame,
        answers_a_write_with_data,
        answers_with_a_changed_header,
        finds_damage_every_time,
    ],
)
def test_a_write_that_did_not_arrive_whole_ends_as_failed(script: Script) -> None:
    with connected(script) as (connector, peer):
        (event,) = ends(connector, [connector.writer(peer, ALL).write(0)])
        assert (event.state, event.nbytes) == ("failed", 0)
        assert "stream to the peer failed" in event.error


def answers_half_a_read(stream: Stream) -> None:
    asked = stream.next()
    head = encode(Kind.DATA, asked.header.number, (), LAYER, summed=True)
    stream.sock.sendall(head + bytes(LAYER // 2))


def answers_half_a_read_and_stalls(stream: Stream) -> None:
    answers_half_a_read(stream)
    stream.until_closed()


def answers_another_length(stream: Stream) -> None:
    data(stream, stream.next().header.number, bytes(LAYER - 1))
    stream.until_closed()


def answers_without_a_checksum(stream: Stream) -> None:
    head = encode(Kind.DATA, stream.next().header.number, (), LAYER)
    stream.sock.sendall(head + bytes(LAYER))
    stream.until_closed()


def answers_a_read_with_ok(stream: Stream) -> None:
    answer(stream, Kind.OK, stream.next().header.number)
    stream.until_closed()


def answers_damaged_data_every_time(stream: Stream) -> None:
    for _ in range(2):
        data(stream, stream.next().header.number, bytes(LAYER), told=b"else")
    assert stream.until_closed() == 0


@pytest.mark.parametrize(
    "script",
    [
        answers_half_a_read,
        answers_half_a_read_and_stalls,
        answers_another_length,
        answers_without_a_checksum,
        answers_a_read_with_ok,
        answers_damaged_data_every_time,
    ],
)
def test_a_read_that_did_not_arrive_whole_ends_as_failed(script: Script) -> None:
    with connected(script) as (connector, peer):
        (event,) = ends(connector, [connector.reader(peer, ALL).read(0)])
        assert (event.state, event.nbytes) == ("failed", 0)


def test_a_frame_that_was_damaged_once_is_sent_again() -> None:
    arrived: list[bytes] = []

    def script(stream: Stream) -> None:
        for kind in (Kind.BAD, Kind.OK):
            asked, payload = stream.put()
            arrived.append(payload)
            answer(stream, kind, asked.header.number)
        stream.until_closed()

    with connected(script, PATIENT_S) as (connector, peer):
        (event,) = ends(connector, [connector.writer(peer, ALL).write(0)])
        assert (event.state, event.nbytes) == ("done", LAYER)
    assert arrived == [b"\x01" * LAYER] * 2


def test_data_that_was_damaged_once_is_asked_for_again() -> None:
    def script(stream: Stream) -> None:
        data(stream, stream.next().header.number, bytes([9]) * LAYER, told=b"else")
        data(stream, stream.next().header.number, bytes([3]) * LAYER)
        stream.until_closed()

    owner, pool = ScriptedOwner(script, PATIENT_S), HostMemory()
    connector = TcpConnector(NetworkOptions(streams=1))
    connector.open(pool.region, LAYOUT)
    reader = connector.reader(connector.connect(owner.describe()), ALL)
    (event,) = ends(connector, [reader.read(1)])
    assert (event.state, event.nbytes) == ("done", LAYER)
    assert pool.bytes == bytes(LAYER) + bytes([3]) * LAYER + bytes(LAYER)
    connector.close()
    owner.close()


def test_no_more_than_a_window_is_under_way_to_a_peer_that_does_not_answer() -> None:
    taken: list[int] = []

    def script(stream: Stream) -> None:
        try:
            while True:
                asked, _ = stream.put()
                taken.append(asked.header.number)
        except ConnectionError:
            return

    with connected(script) as (connector, peer):
        writer = connector.writer(peer, ALL)
        events = ends(connector, [writer.write(0) for _ in range(3 * WINDOW)])
    assert len(taken) == WINDOW
    assert {event.state for event in events} == {"failed"}


def test_a_transfer_of_several_frames_fails_as_a_whole_and_once() -> None:
    large = [Span(0, 0, LAYER // 2), Span(LAYER // 2, LAYER // 2, LAYER // 2)] * 300

    def script(stream: Stream) -> None:
        asked, _ = stream.put()
        answer(stream, Kind.OK, asked.header.number)
        stream.put()

    with connected(script) as (connector, peer):
        (event,) = ends(connector, [connector.writer(peer, large).write(0)])
        assert (event.state, event.nbytes) == ("failed", 0)
        assert connector.poll() == []


def test_disconnect_ends_what_waits_and_what_is_under_way() -> None:
    release = threading.Event()
    started = threading.Event()

    def script(stream: Stream) -> None:
        asked, _ = stream.put()
        started.set()
        release.wait()
        answer(stream, Kind.OK, asked.header.number)
        stream.until_closed()

    with connected(script) as (connector, peer):
        writer = connector.writer(peer, ALL)
        first = writer.write(0)
        started.wait()
        waiting = [writer.write(1) for _ in range(2 * WINDOW)]
        threading.Timer(0.0, release.set).start()
        connector.disconnect(peer)
        states = {event.transfer: event.state for event in connector.poll()}
        assert set(states) == {first, *waiting}
        assert states[waiting[-1]] == "failed"


def test_a_stream_that_failed_is_opened_again_later() -> None:
    """Not at once: what comes within a moment fails, so that a dead peer costs no waiting."""
    lives = iter([dies_before_the_payload])

    def script(stream: Stream) -> None:
        life = next(lives, None)
        if life is not None:
            life(stream)
            return
        while True:
            asked, _ = stream.put()
            answer(stream, Kind.OK, asked.header.number)

    with connected(script) as (connector, peer):
        writer = connector.writer(peer, ALL)
        states = [ends(connector, [writer.write(0)])[0].state for _ in range(2)]
        assert states == ["failed", "failed"]
        while ends(connector, [writer.write(0)])[0].state == "failed":
            pass


def test_a_peer_that_cannot_be_reached_is_refused() -> None:
    owner = ScriptedOwner(takes_all_and_says_nothing)
    description = owner.describe()
    owner.close()
    connector = TcpConnector(NetworkOptions(stall_s=STALL_S))
    connector.open(HostMemory().region, LAYOUT)
    with pytest.raises(TransferFailed, match="no stream to the peer"):
        connector.connect(description)
    connector.close()
    assert kv_threads() == []


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from tcp_pools import LAYOUT, STALL_S, HostMemory
from splitserve.transfer.connectors.tcp import TcpConnector
from splitserve.transfer.options import NetworkOptions
pool = HostMemory()
connector = TcpConnector(NetworkOptions(stall_s=STALL_S))
connector.open(pool.region, LAYOUT)
print(connector.describe().hex(), flush=True)
for line in sys.stdin:
    print(sum(pool.bytes), flush=True)
"""


def test_what_a_stopped_peer_finds_when_it_goes_on_is_not_taken() -> None:
    """The frames lie in its socket when the writer gives them up and says that it has."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(Path(__file__).parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    pool = HostMemory(fill=1)
    connector = TcpConnector(NetworkOptions(stall_s=STALL_S))
    connector.open(pool.region, LAYOUT)
    try:
        description = bytes.fromhex(child.stdout.readline())
        peer = connector.connect(description)
        os.kill(child.pid, signal.SIGSTOP)
        writer = connector.writer(peer, ALL)
        transfers = [writer.write(layer) for layer in range(LAYOUT.num_layers)]
        connector.disconnect(peer)
        assert {event.state for event in ends(connector, transfers)} == {"failed"}
        os.kill(child.pid, signal.SIGCONT)
        again = connector.connect(description)
        ends(connector, [connector.reader(again, ALL).read(0)])
        print(file=child.stdin, flush=True)
        assert int(child.stdout.readline()) == 0
    finally:
        child.kill()
        child.communicate()
        connector.close()
