"""What goes over one stream, after the two ends have proven themselves. Pure.

    header   magic, kind, whether the payload has a checksum, number of pieces, number of the
             frame, payload bytes, and a CRC-32 of the header (with 0 in its place) and the table
    table    of each piece: offset in the owner's pool, bytes. PUT and GET only
    payload  the pieces' bytes. PUT and DATA only
    sum      of the payload, 8 bytes of XXH3, where there is to be one

A GET that says so asks for DATA with a checksum. DATA, OK and BAD carry the number of the frame
that they answer. Integers are little-endian.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Final

MAX_PIECES: Final = 256
"""In one frame: within what a system call takes at once."""

MAX_PAYLOAD: Final = 1 << 22
"""What both ends do once a frame, and the wait for its answer, cost as much as some hundred
thousand bytes."""

MAGIC: Final = b"SKV2"
_HEADER: Final = struct.Struct("<4sBBHQQI")
_CRC: Final = struct.Struct("<I")
_PIECE: Final = struct.Struct("<QQ")
HEADER_BYTES: Final = _HEADER.size

Piece = tuple[int, int]
"""Offset in the owner's pool, bytes."""


class Kind(IntEnum):
    PUT = 1
    GET = 2
    DATA = 3
    OK = 4
    BAD = 5


_KINDS: Final = frozenset(Kind)


class FrameError(Exception):
    """The stream carries something that no peer of ours sends. It is of no use afterwards."""


@dataclass(frozen=True, slots=True)
class Header:
    """``summed``: the payload has a checksum. ``crc`` covers the table as well."""

    kind: Kind
    pieces: int
    number: int
    nbytes: int
    summed: bool
    crc: int

    @property
    def table_bytes(self) -> int:
        return self.pieces * _PIECE.size


def encode(
    kind: Kind,
    number: int,
    pieces: Sequence[Piece] = (),
    nbytes: int = 0,
    summed: bool = False,
) -> bytes:
    """Header and table. ``nbytes`` and ``summed`` are of the payload."""
    table = struct.pack(f"<{2 * len(pieces)}Q", *chain.from_iterable(pieces))
    bare = _bare(Header(kind, len(pieces), number, nbytes, summed, 0))
    crc = zlib.crc32(table, zlib.crc32(bare))
    return bare[: -_CRC.size] + _CRC.pack(crc) + table


def parse_header(data: bytes | bytearray) -> Header:
    """Of HEADER_BYTES. Raises FrameError. Its numbers are not to be relied on before
    ``parse_table`` has seen what the CRC covers, but they are small."""
    magic, kind, summed, pieces, number, nbytes, crc = _HEADER.unpack(data)
    if magic != MAGIC or kind not in _KINDS or summed > 1:
        raise FrameError("the stream carries no frame")
    if pieces > MAX_PIECES or nbytes > MAX_PAYLOAD:
        raise FrameError(f"a frame of {pieces} pieces and {nbytes} bytes is too large")
    return Header(Kind(kind), pieces, number, nbytes, bool(summed), crc)


def parse_table(header: Header, table: bytes | bytearray, pool_bytes: int) -> list[Piece]:
    """Raises FrameError for bytes that were changed on the way, pieces outside the pool, and a
    payload that the pieces do not add up to."""
    if zlib.crc32(table, zlib.crc32(_bare(header))) != header.crc:
        raise FrameError("a header was changed on its way")
    pieces: list[Piece] = list(_PIECE.iter_unpack(table))
    total = 0
    for offset, size in pieces:
        if size < 1 or offset > pool_bytes - size:
            raise FrameError("a frame names bytes outside the pool")
        total += size
    if pieces and total != header.nbytes:
        raise FrameError("a frame's pieces are not its payload")
    return pieces


def _bare(header: Header) -> bytes:
    """Without its CRC."""
    return _HEADER.pack(
        MAGIC, header.kind, header.summed, header.pieces, header.number, header.nbytes, 0
    )
