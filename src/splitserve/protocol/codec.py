"""Frames: 4-byte big-endian length, version byte, msgpack body.

Sans-IO: bytes in, messages out. The length counts version byte and body.
"""

import struct
from typing import Final

import msgspec

from splitserve.errors import ProtocolMismatch
from splitserve.protocol.control import (
    PROTOCOL_VERSION,
    Abort,
    Drain,
    Failed,
    Hello,
    Holding,
    Inventory,
    Pair,
    RoleSet,
    SetRole,
    StepTokens,
    Submit,
    Welcome,
)
from splitserve.protocol.handoff import (
    Attach,
    Attached,
    Fence,
    FenceRequest,
    Grant,
    KVReady,
    Prefill,
    PrefillDone,
    Refuse,
    Renew,
    Reserve,
)
from splitserve.protocol.telemetry import Load

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
_HEADER: Final = struct.Struct(">IB")

Message = (
    Hello
    | Welcome
    | Pair
    | Submit
    | Abort
    | StepTokens
    | Failed
    | Drain
    | SetRole
    | RoleSet
    | Inventory
    | Holding
    | Reserve
    | Grant
    | Refuse
    | Prefill
    | PrefillDone
    | KVReady
    | FenceRequest
    | Fence
    | Renew
    | Attach
    | Attached
    | Load
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """One whole frame."""
    body = _encoder.encode(message)
    return _HEADER.pack(len(body) + 1, PROTOCOL_VERSION) + body


class FrameDecoder:
    """Turns a byte stream into messages, whatever way the stream is cut.

    Raises ProtocolMismatch on another version, an oversized frame or a body that is not one of
    ours; the connection is of no use afterwards.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_frame_bytes = max_frame_bytes

    def feed(self, data: bytes) -> list[Message]:
        """All messages completed by ``data``, in order."""
        self._buffer += data
        messages: list[Message] = []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            length, version = _HEADER.unpack_from(self._buffer, start)
            if version != PROTOCOL_VERSION:
                raise ProtocolMismatch(
                    f"peer speaks frame version {version}, this build speaks {PROTOCOL_VERSION}"
                )
            if not 1 <= length <= self._max_frame_bytes:
                raise ProtocolMismatch(f"frame of {length} bytes (limit {self._max_frame_bytes})")
            end = start + 4 + length
            if len(self._buffer) < end:
                break
            messages.append(_decode_body(memoryview(self._buffer)[start + _HEADER.size : end]))
            start = end
        del self._buffer[:start]
        return messages


def _decode_body(body: memoryview) -> Message:
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ProtocolMismatch(f"unreadable frame: {error}") from error
    except RecursionError:
        raise ProtocolMismatch("unreadable frame: it is nested too deeply") from None
    finally:
        body.release()
