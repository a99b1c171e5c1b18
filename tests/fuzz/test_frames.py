"""Whatever bytes come on a worker's socket: one of our messages, or the end of that connection."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.test_codec import EVERY_MESSAGE
from splitserve.errors import ProtocolMismatch
from splitserve.protocol.address import UnixAddress
from splitserve.protocol.codec import MAX_FRAME_BYTES, FrameDecoder, Message, encode
from splitserve.protocol.connection import Connection, connect
from splitserve.protocol.control import PROTOCOL_VERSION, Hello
from splitserve.protocol.listening import listen


def frame(body: bytes) -> bytes:
    return struct.pack(">IB", len(body) + 1, PROTOCOL_VERSION) + body


def packed(value: object) -> bytes:
    return frame(msgspec.msgpack.encode(value))


def read(data: bytes) -> list[Message] | None:
    """The messages of ``data``, None where it is refused. Anything else is a failure."""
    try:
        return FrameDecoder().feed(data)
    except ProtocolMismatch:
        return None


@given(st.sampled_from(EVERY_MESSAGE), st.data())
@settings(max_examples=300, deadline=None)
def test_a_frame_with_changed_bytes_is_a_message_or_refused(
    message: Message, data: st.DataObject
) -> None:
    changed = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(5, len(changed) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(changed))
    assert found is None or len(found) == 1


@given(st.sampled_from(EVERY_MESSAGE), st.data())
@settings(max_examples=150, deadline=None)
def test_a_frame_cut_short_is_refused_or_waits(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    body = whole[5 : data.draw(st.integers(5, len(whole) - 1))]
    assert read(frame(body)) is None
    assert read(whole[:-1]) == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)  # fmt: skip


@given(st.sampled_from(EVERY_MESSAGE), st.data())
@settings(max_examples=300, deadline=None)
def test_a_message_with_a_wrong_field_is_refused_or_one_of_ours(
    message: Message, data: st.DataObject
) -> None:
    fields = msgspec.to_builtins(message, builtin_types=(bytes,))
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(VALUES)
    found = read(packed(fields))
    assert found is None or len(found) == 1


@given(st.text(max_size=20).filter(lambda tag: tag not in KNOWN), VALUES)
def test_an_unknown_kind_of_message_is_refused(tag: str, value: object) -> None:
    assert read(packed({"type": tag, "value": value})) is None


KNOWN = {type(message).__name__ for message in EVERY_MESSAGE}

HOSTILE = {
    "deep": frame(b"\x82\xa4type\xa5Drain\xa1x" + b"\x91" * 100_000 + b"\xc0"),
    "deeper in a list": frame(b"\x91" * 100_000),
    "array of four billion": frame(b"\x82\xa4type\xa5Renew\xa8handoffs\xdd\xff\xff\xff\xff"),
    "map of four billion": frame(b"\xdf\xff\xff\xff\xff"),
    "string of four gigabytes": frame(b"\x82\xa4type\xa5Hello\xa7gateway\xdb\xff\xff\xff\xff"),
    "no utf-8": frame(b"\x82\xa4type\xa5Hello\xa7gateway\xa2\xff\xfe"),
    "no tag": frame(b"\x80"),
    "two values": frame(b"\x81\xa4type\xa5Drain\xc0"),
    "too long": struct.pack(">IB", MAX_FRAME_BYTES + 1, PROTOCOL_VERSION),
    "longest there is": b"\xff" * 5,
    "http": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "pickle": frame(b"\x80\x04cos\nsystem\n"),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_frames_are_refused(name: str) -> None:
    assert read(HOSTILE[name]) is None


def test_a_frame_is_refused_by_its_length_alone() -> None:
    """Nothing of a frame that is too long is waited for."""
    assert read(struct.pack(">IB", MAX_FRAME_BYTES, PROTOCOL_VERSION)) == []
    assert read(struct.pack(">IB", MAX_FRAME_BYTES + 1, PROTOCOL_VERSION)) is None


class Listener:
    """Notes what a socket brought."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    def made(self, connection: Connection) -> None:
        self.connection = connection

    def received(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            self.messages.put_nowait(message)

    def lost(self, connection: Connection, reason: str) -> None:
        self.ended.put_nowait(reason)


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[UnixAddress, Listener]]:
    address, listener = UnixAddress(str(folder / "w.sock")), Listener()
    server = await listen(address, lambda: Connection("peer", listener))
    async with server:
        yield address, listener
        listener.connection.abort()
        await listener.connection.ended.wait()


async def test_hostile_peers_are_cut_off_with_a_reason_and_the_next_one_is_served(
    tmp_path: Path,
) -> None:
    async with listening(tmp_path) as (address, listener):
        for name, data in HOSTILE.items():
            reader, writer = await asyncio.open_unix_connection(address.path)
            writer.write(data)
            assert await reader.read() == b""
            reason = await listener.ended.get()
            assert reason != "the connection closed", name
            writer.close()
        honest = Connection("worker", Listener())
        await connect(address, honest)
        honest.write(encode(Hello("g")))
        assert await listener.messages.get() == Hello("g")
        honest.abort()
        await honest.ended.wait()
