"""A pool's own side of connector tcp against peers that are none, or not whole."""

import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tcp_pools import (
    ALL,
    LAYER,
    LAYOUT,
    PATIENT_S,
    STALL_S,
    HostMemory,
    Stream,
    ends,
    kv_threads,
    summed,
)

from splitserve.errors import ConfigError, TransferFailed
from splitserve.protocol.gate import Gate, GateFiles, Tls
from splitserve.protocol.handshake import NONCE_BYTES, OpenerSide
from splitserve.protocol.memory import MemoryRegion
from splitserve.transfer.connectors.tcp import TcpConnector
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.plan import Span
from splitserve.transfer.tcp.frames import HEADER_BYTES, Kind, encode, parse_header
from splitserve.transfer.tcp.owner import MAX_UNPROVEN

PAYLOAD = bytes(range(64))


class Owned:
    """A pool of zeros and the connector that owns it."""

    def __init__(self, stall_s: float) -> None:
        self.pool = HostMemory()
        self.connector = TcpConnector(NetworkOptions(stall_s=stall_s))
        self.connector.open(self.pool.region, LAYOUT)
        self.told = msgspec.msgpack.decode(self.connector.describe())

    def knock(self) -> Stream:
        return Stream(socket.create_connection((self.told["host"], self.told["port"])))

    def stream(self) -> Stream:
        """One that has proven itself."""
        stream = self.knock()
        side = OpenerSide(self.told["token"], secrets.token_bytes(NONCE_BYTES))
        while not side.done:
            answer = side.feed(stream.sock.recv(256))
            if answer:
                stream.sock.sendall(answer)
        return stream

    def serves_a_peer(self) -> bool:
        other = HostMemory(fill=5)
        connector = TcpConnector(NetworkOptions(stall_s=PATIENT_S))
        connector.open(other.region, LAYOUT)
        try:
            peer = connector.connect(self.connector.describe())
            (event,) = ends(connector, [connector.writer(peer, ALL).write(2)])
            return event.state == "done" and self.pool.bytes[2 * LAYER :] == bytes([5]) * LAYER
        finally:
            connector.close()


@pytest.fixture
def owned() -> Iterator[Owned]:
    yield from open_owned(PATIENT_S)


@pytest.fixture
def hasty() -> Iterator[Owned]:
    """It soon gives up on what stalls."""
    yield from open_owned(STALL_S)


def open_owned(stall_s: float) -> Iterator[Owned]:
    owned = Owned(stall_s)
    yield owned
    owned.connector.close()
    assert kv_threads() == []


def put(offset: int, payload: bytes = PAYLOAD, told: bytes | None = None) -> bytes:
    head = encode(Kind.PUT, 1, [(offset, len(payload))], len(payload), summed=True)
    return head + summed(payload, told)


def is_closed(stream: Stream) -> bool:
    """Without another answer."""
    with stream.sock:
        return stream.until_closed() == 0


def test_a_frame_is_stored_and_said_to_be(owned: Owned) -> None:
    stream = owned.stream()
    stream.sock.sendall(put(100))
    answer = parse_header(stream.take(HEADER_BYTES))
    assert (answer.kind, answer.number) == (Kind.OK, 1)
    assert owned.pool.bytes[100:164] == PAYLOAD
    assert sum(owned.pool.bytes) == sum(PAYLOAD)
    stream.sock.close()


def test_a_damaged_payload_is_said_to_be_and_the_stream_goes_on(owned: Owned) -> None:
    stream = owned.stream()
    for told, kind in ((b"else", Kind.BAD), (PAYLOAD, Kind.OK)):
        stream.sock.sendall(put(100, told=told))
        assert parse_header(stream.take(HEADER_BYTES)).kind is kind
    stream.sock.close()


def test_a_frame_without_a_checksum_is_taken_as_it_comes(owned: Owned) -> None:
    stream = owned.stream()
    stream.sock.sendall(encode(Kind.PUT, 1, [(100, 64)], 64) + PAYLOAD)
    assert parse_header(stream.take(HEADER_BYTES)).kind is Kind.OK
    stream.sock.sendall(encode(Kind.GET, 2, [(100, 64)], 64))
    answer = parse_header(stream.take(HEADER_BYTES))
    assert (answer.kind, answer.summed) == (Kind.DATA, False)
    assert stream.take(64) == PAYLOAD
    stream.sock.close()


def test_a_peer_may_do_without_checksums(owned: Owned) -> None:
    other = HostMemory(fill=5)
    connector = TcpConnector(NetworkOptions(checksums=False))
    connector.open(other.region, LAYOUT)
    peer = connector.connect(owned.connector.describe())
    writer, reader = connector.writer(peer, ALL), connector.reader(peer, ALL)
    done = ends(connector, [writer.write(0), writer.write(2)])
    done += ends(connector, [reader.read(1)])
    assert [event.state for event in done] == ["done"] * 3
    assert owned.pool.bytes == (bytes([5]) * LAYER + bytes(LAYER) + bytes([5]) * LAYER)
    assert other.bytes == owned.pool.bytes
    connector.close()


HEAD = encode(Kind.PUT, 1, [(0, 64)], 64)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 4, id="http"),
        pytest.param(bytes(HEADER_BYTES), id="zeros"),
        pytest.param(HEAD[:-1] + bytes([HEAD[-1] ^ 1]) + PAYLOAD, id="changed table"),
        pytest.param(HEAD[:8] + b"\x02" + HEAD[9:] + PAYLOAD, id="changed number"),
        pytest.param(put(LAYOUT.pool_bytes - 63), id="past the end"),
        pytest.param(put((1 << 64) - 64), id="before the start"),
        pytest.param(encode(Kind.PUT, 1, [(0, 64)], 63) + PAYLOAD, id="other length"),
        pytest.param(encode(Kind.PUT, 1), id="no pieces"),
        pytest.param(encode(Kind.GET, 1, [(LAYOUT.pool_bytes, 1)], 1), id="read past the end"),
        pytest.param(encode(Kind.OK, 1, [(0, 1)], 1), id="an answer"),
    ],
)
def test_what_no_peer_of_ours_sends_closes_the_stream_and_touches_nothing(
    owned: Owned, sent: bytes
) -> None:
    stream = owned.stream()
    stream.sock.sendall(sent)
    assert is_closed(stream)
    assert sum(owned.pool.bytes) == 0
    assert owned.serves_a_peer()


def test_a_frame_of_too_many_pieces_is_not_waited_for(owned: Owned) -> None:
    stream = owned.stream()
    stream.sock.sendall(encode(Kind.PUT, 1, [(0, 1)] * 257, 257)[:HEADER_BYTES])
    assert is_closed(stream)


@pytest.mark.parametrize("cut", [1, HEADER_BYTES - 1, HEADER_BYTES + 3, HEADER_BYTES + 30])
def test_half_a_frame_gets_no_answer(owned: Owned, cut: int) -> None:
    stream = owned.stream()
    stream.sock.sendall(put(0)[:cut])
    stream.sock.shutdown(socket.SHUT_WR)
    assert is_closed(stream)
    assert owned.serves_a_peer()


def test_a_frame_that_stalls_closes_its_stream_and_an_idle_one_stays_open(hasty: Owned) -> None:
    idle, stalled = hasty.stream(), hasty.stream()
    stalled.sock.sendall(put(0)[: HEADER_BYTES + 30])
    assert is_closed(stalled)
    idle.sock.sendall(put(0))
    assert parse_header(idle.take(HEADER_BYTES)).kind is Kind.OK
    idle.sock.close()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(64)], ids=["http", "zeros"])
def test_who_proves_nothing_is_closed_out(owned: Owned, sent: bytes) -> None:
    stream = owned.knock()
    stream.sock.sendall(sent)
    with stream.sock:
        stream.until_closed()
    assert owned.serves_a_peer()


def test_a_peer_with_another_pools_token_is_refused(owned: Owned) -> None:
    connector = TcpConnector()
    connector.open(HostMemory().region, LAYOUT)
    told = owned.told | {"token": bytes(NONCE_BYTES)}
    with pytest.raises(TransferFailed, match="no stream"):
        connector.connect(msgspec.msgpack.encode(told))
    connector.close()
    assert sum(owned.pool.bytes) == 0


def test_a_crowd_that_says_nothing_keeps_peers_out_for_a_moment_only(hasty: Owned) -> None:
    crowd = [hasty.knock() for _ in range(MAX_UNPROVEN + 8)]
    for stream in crowd:
        with stream.sock:
            stream.until_closed()
    stream = hasty.stream()
    stream.sock.sendall(put(0))
    assert parse_header(stream.take(HEADER_BYTES)).kind is Kind.OK
    stream.sock.close()


def test_after_close_no_stream_is_served_and_no_thread_is_left(owned: Owned) -> None:
    stream = owned.stream()
    stream.sock.sendall(put(0)[:-1])
    owned.connector.close()
    assert kv_threads() == []
    before = bytes(owned.pool.bytes)
    with stream.sock:
        stream.until_closed()
    assert owned.pool.bytes == before
    with pytest.raises(OSError, match=r".+"):
        owned.knock()


def test_a_pool_on_a_gpu_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="choose connector nixl"):
        TcpConnector().open(MemoryRegion(4096, LAYOUT.pool_bytes, "cuda:0"), LAYOUT)


def test_an_address_that_is_taken_is_refused(owned: Owned) -> None:
    options = NetworkOptions(port=owned.told["port"])
    with pytest.raises(ConfigError, match="cannot listen"):
        TcpConnector(options).open(HostMemory().region, LAYOUT)


@pytest.mark.parametrize(
    "wrong",
    [{"host": "0.0.0.0"}, {"host": "::"}, {"streams": 0}, {"port": 65536}, {"stall_s": 0.0}],
    ids=str,
)
def test_impossible_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        NetworkOptions(**wrong)  # type: ignore[arg-type]


def tls(name: str) -> Tls:
    folder = Path(__file__).parents[2] / "protocol" / "tls"
    files = GateFiles(
        tls_cert=folder / f"{name}.crt", tls_key=folder / f"{name}.key", tls_ca=folder / "ca.crt"
    )
    made = Gate.load(files, {}).tls
    assert made is not None
    return made


def test_under_tls_bytes_go_both_ways_and_strangers_are_refused() -> None:
    options = NetworkOptions(stall_s=PATIENT_S, tls=tls("peer"))
    pools = HostMemory(fill=1), HostMemory(fill=2), HostMemory()
    owner, peer = TcpConnector(options), TcpConnector(options)
    stranger = TcpConnector(NetworkOptions(tls=tls("stranger")))
    for connector, pool in zip((owner, peer, stranger), pools, strict=True):
        connector.open(pool.region, LAYOUT)
    try:
        there = peer.connect(owner.describe())
        half = [Span(0, 0, LAYER // 2)]
        writer, reader = peer.writer(there, half), peer.reader(there, half)
        done = ends(peer, [writer.write(0), reader.read(1)])
        assert [event.state for event in done] == ["done", "done"]
        assert pools[0].bytes[: LAYER // 2] == bytes([2]) * (LAYER // 2)
        assert pools[1].bytes[LAYER : LAYER + LAYER // 2] == bytes([1]) * (LAYER // 2)
        with pytest.raises(TransferFailed):
            stranger.connect(owner.describe())
    finally:
        for connector in (owner, peer, stranger):
            connector.close()
    assert kv_threads() == []
