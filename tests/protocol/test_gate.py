"""A worker's TCP port: those who know the secret come in, others cost little."""

import asyncio
import logging
import re
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from splitserve.errors import ConfigError
from splitserve.protocol.address import TcpAddress, UnixAddress, parse_address
from splitserve.protocol.codec import Message, encode
from splitserve.protocol.connection import Connection, connect
from splitserve.protocol.control import Drain, Hello
from splitserve.protocol.doorway import Doorway
from splitserve.protocol.gate import MAX_UNPROVEN, Gate, GateFiles
from splitserve.protocol.handshake import GREETING, NONCE_BYTES, PROOF_BYTES, OpenerSide
from splitserve.protocol.listening import listen

SECRET = b"a secret that both ends know"
GREETING_BYTES = len(GREETING) + NONCE_BYTES


class Heard:
    """Listener that notes what it is told."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    def made(self, connection: Connection) -> None:
        self.connections.append(connection)

    def received(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            self.messages.put_nowait(message)

    def lost(self, connection: Connection, reason: str) -> None:
        self.ended.put_nowait(reason)


@asynccontextmanager
async def listening(gate: Gate) -> AsyncIterator[tuple[TcpAddress, Heard]]:
    heard = Heard()
    server = await listen(TcpAddress("127.0.0.1", 0), lambda: Connection("peer", heard), gate)
    port = server.sockets[0].getsockname()[1]
    try:
        yield TcpAddress("127.0.0.1", port), heard
    finally:
        server.close()
        for connection in heard.connections:
            connection.abort()
            await connection.ended.wait()


async def arrives(address: TcpAddress, heard: Heard, gate: Gate) -> None:
    """A peer behind ``gate`` comes in and its first frame is read."""
    connection = Connection("listener", Heard())
    await connect(address, connection, gate)
    connection.write(encode(Hello("g")))
    assert await heard.messages.get() == Hello("g")
    connection.abort()
    await connection.ended.wait()


async def closed(reader: asyncio.StreamReader) -> bytes:
    """All that is left to read."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def knock(address: TcpAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(address.host, address.port)


async def test_peers_that_share_the_secret_exchange_frames() -> None:
    async with listening(Gate(SECRET)) as (address, heard):
        ours = Heard()
        connection = Connection("listener", ours)
        await connect(address, connection, Gate(SECRET))
        connection.write(encode(Hello("g")))
        assert await heard.messages.get() == Hello("g")
        heard.connections[0].write(encode(Drain()))
        assert await ours.messages.get() == Drain()
        connection.abort()
        await connection.ended.wait()


async def test_without_a_secret_loopback_needs_no_handshake() -> None:
    async with listening(Gate()) as (address, heard):
        await arrives(address, heard, Gate())


async def test_another_secret_is_refused_before_any_frame(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate(SECRET)
    async with listening(gate) as (address, heard):
        for _ in range(3):
            with pytest.raises(OSError, match="no handshake with the peer"):
                await connect(address, Connection("x", Heard()), Gate(b"another secret, as long"))
        await arrives(address, heard, Gate(SECRET))
    assert gate.refused == 3
    assert len(heard.connections) == 1
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert line == "refused a connection from 127.0.0.1: it does not know the secret"


async def test_an_opener_without_a_secret_is_told_what_to_do() -> None:
    async with listening(Gate(SECRET)) as (address, _):
        ours = Heard()
        connection = Connection("worker", ours)
        await connect(address, connection, Gate())
        assert "SPLITSERVE_SECRET" in await ours.ended.get()


async def test_a_listener_that_asks_for_no_secret_is_not_believed() -> None:
    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(Drain()))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="does not ask for a secret"):
            await connect(TcpAddress("127.0.0.1", port), Connection("x", Heard()), Gate(SECRET))


async def test_a_hundred_megabyte_frame_is_cut_off_after_a_few_bytes() -> None:
    gate = Gate(SECRET)
    async with listening(gate) as (address, heard):
        reader, writer = await knock(address)
        writer.write(struct.pack(">IB", 100 << 20, 1))
        writer.write(b"x" * PROOF_BYTES * 2)
        assert len(await closed(reader)) <= GREETING_BYTES
        assert gate.refused == 1
        assert heard.connections == []
        writer.close()
        await arrives(address, heard, gate)


async def test_a_replayed_answer_is_refused() -> None:
    gate = Gate(SECRET)
    async with listening(gate) as (address, heard):
        opener = OpenerSide(SECRET, b"o" * NONCE_BYTES)
        reader, writer = await knock(address)
        answer = opener.feed(await reader.readexactly(GREETING_BYTES))
        writer.write(answer)
        assert len(await reader.readexactly(PROOF_BYTES)) == PROOF_BYTES
        again, second = await knock(address)
        await again.readexactly(GREETING_BYTES)
        second.write(answer)
        assert await closed(again) == b""
        assert (gate.refused, len(heard.connections)) == (1, 1)
        writer.close()
        second.close()


async def test_whoever_sends_slowly_is_cut_off_in_time() -> None:
    refused: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def enter() -> asyncio.Protocol:
        raise AssertionError("an unproven peer came in")

    def door() -> Doorway:
        side = Gate(SECRET).listener()
        assert side is not None
        return Doorway(side, enter, lambda *said: refused.put_nowait(said), timeout_s=0.05)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(door, "127.0.0.1", 0)
    async with server:
        reader, writer = await knock(TcpAddress(*server.sockets[0].getsockname()[:2]))
        writer.write(b"x")
        assert len(await closed(reader)) == GREETING_BYTES
        peer, reason = await refused.get()
        assert (peer, "proved nothing" in reason) == ("127.0.0.1", True)
        writer.close()


async def test_five_hundred_silent_connections_keep_no_peer_out() -> None:
    gate = Gate(SECRET)
    async with listening(gate) as (address, heard):
        silent = [await knock(address) for _ in range(500)]
        await arrives(address, heard, gate)
        # All but the last have been shown out to make room.
        for reader, _ in silent[: 500 - MAX_UNPROVEN]:
            assert len(await closed(reader)) <= GREETING_BYTES
        assert 500 - MAX_UNPROVEN <= gate.refused < 500
        assert len(heard.connections) == 1
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "worker-1"])
def test_a_port_that_others_reach_needs_a_secret(host: str) -> None:
    address = parse_address(f"tcp:{host}:9000")
    with pytest.raises(ConfigError, match="--secret-file or SPLITSERVE_SECRET") as caught:
        Gate().check_listen(address)
    assert "\n" not in str(caught.value)
    Gate(SECRET).check_listen(address)


@pytest.mark.parametrize(
    "address", ["tcp:127.0.0.1:9", "tcp:[::1]:9", "tcp:localhost:9", "unix:/x"]
)
def test_what_only_this_machine_reaches_needs_none(address: str) -> None:
    Gate().check_listen(parse_address(address))


async def test_listening_itself_refuses_an_open_port_without_a_secret() -> None:
    with pytest.raises(ConfigError, match="no shared secret"):
        await listen(TcpAddress("0.0.0.0", 0), lambda: Connection("x", Heard()))


async def test_a_unix_socket_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    server = await listen(UnixAddress(str(path)), lambda: Connection("x", Heard()))
    async with server:
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(ConfigError, match="cannot listen on unix:"):
            await listen(UnixAddress(str(path)), lambda: Connection("x", Heard()))


def secret_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    file = folder / "secret"
    file.write_bytes(content)
    file.chmod(mode)
    return file


def test_the_secret_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = secret_file(tmp_path, SECRET + b"\n")
    environment = {"SPLITSERVE_SECRET": "x" * 32}
    by_file = Gate.load(GateFiles(secret_file=file), environment).listener()
    by_variable = Gate.load(GateFiles(), environment).listener()
    assert by_file is not None
    assert by_variable is not None
    knows, other = (OpenerSide(secret, b"o" * NONCE_BYTES) for secret in (SECRET, b"x" * 32))
    by_file.feed(knows.feed(by_file.start()))
    by_variable.feed(other.feed(by_variable.start()))
    assert (by_file.done, by_variable.done) == (True, True)
    assert Gate.load(GateFiles(), {}).listener() is None


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (SECRET, 0o640, "is open to others: chmod 600"),
        (SECRET, 0o604, "is open to others: chmod 600"),
        (b"short", 0o600, "has 5 bytes: give at least 16"),
    ],
)
def test_a_secret_that_is_none_is_refused(
    tmp_path: Path, content: bytes, mode: int, said: str
) -> None:
    file = secret_file(tmp_path, content, mode)
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        Gate.load(GateFiles(secret_file=file), {})
    assert content.decode() not in str(caught.value)


def test_half_of_tls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="go together"):
        Gate.load(GateFiles(tls_cert=tmp_path / "cert"), {})
    missing = GateFiles(tls_cert=tmp_path / "c", tls_key=tmp_path / "k", tls_ca=tmp_path / "a")
    with pytest.raises(ConfigError, match="No such file"):
        Gate.load(missing, {})


def tls(name: str) -> GateFiles:
    folder = Path(__file__).parent / "tls"
    return GateFiles(
        tls_cert=folder / f"{name}.crt", tls_key=folder / f"{name}.key", tls_ca=folder / "ca.crt"
    )


def tls_gate(name: str) -> Gate:
    return Gate.load(tls(name), {"SPLITSERVE_SECRET": SECRET.decode()})


async def test_with_tls_peers_of_one_authority_exchange_frames() -> None:
    async with listening(tls_gate("peer")) as (address, heard):
        await arrives(address, heard, tls_gate("peer"))


async def test_a_certificate_of_another_authority_is_refused() -> None:
    async with listening(tls_gate("peer")) as (address, heard):
        with pytest.raises(OSError, match=r".+"):
            await connect(address, Connection("x", Heard()), tls_gate("stranger"))
        await arrives(address, heard, tls_gate("peer"))
        assert len(heard.connections) == 1


async def test_with_tls_nothing_is_said_in_the_clear() -> None:
    async with listening(tls_gate("peer")) as (address, heard):
        reader, writer = await knock(address)
        writer.write(b"x" * 100)
        assert GREETING not in await closed(reader)
        writer.close()
        await arrives(address, heard, tls_gate("peer"))
        assert len(heard.connections) == 1
