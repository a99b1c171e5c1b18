"""What a stored block is called and how its file begins. Pure.

A file is a header of ``HEADER_BYTES`` and then the block, layer by layer as one pool of all heads
holds it, in however many pools they are: ``[layer, K/V, kv_head, slot, head_dim]``. All numbers are
little-endian.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from zlib import crc32

from splitserve.errors import BugError
from splitserve.protocol.memory import KVLayout

MAGIC: Final = b"SPLITKV\x00"
VERSION: Final = 1
NAME_BYTES: Final = 16
"""Of a block's digest and of an identity's fingerprint."""

_HEADER: Final = struct.Struct(f"<8sII{NAME_BYTES}s{NAME_BYTES}sQ8x")
HEADER_BYTES: Final = _HEADER.size
_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Identity:
    """What blocks must have in common to stand for each other. ``nbytes`` are those of one block
    over all layers."""

    fingerprint: bytes
    nbytes: int

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + self.nbytes

    @property
    def folder(self) -> str:
        return self.fingerprint.hex()

    def name(self, digest: bytes) -> str:
        """The block's file, from the store's folder on. Raises BugError for what is no digest."""
        if len(digest) != NAME_BYTES:
            raise BugError(f"a block's digest has {NAME_BYTES} bytes, not {len(digest)}")
        return f"{self.folder}/{digest.hex()}"


def identity(content_hash: str, layout: KVLayout) -> Identity:
    """Of the blocks of one model in one layout. The number of blocks in the pool is no part of it;
    which of the model's heads the pool holds is."""
    meaning = (
        VERSION,
        content_hash,
        layout.dtype,
        layout.itemsize,
        layout.num_layers,
        layout.num_kv_heads,
        layout.first_kv_head,
        layout.model_kv_heads,
        layout.head_dim,
        layout.block_size,
    )
    digest = blake2b(digest_size=NAME_BYTES)
    for value in meaning:
        # With its length, so that no two different meanings give the same bytes.
        data = str(value).encode("utf-8", "surrogatepass")
        digest.update(_LENGTH.pack(len(data)))
        digest.update(data)
    return Identity(digest.digest(), layout.block_bytes * layout.num_layers)


def checksum(parts: Iterable[memoryview]) -> int:
    """CRC-32 of all parts one after another, however they are cut."""
    value = 0
    for part in parts:
        value = crc32(part, value)
    return value


def header(of: Identity, digest: bytes, check: int) -> bytes:
    """The only right beginning of the file of ``digest``, whose bytes have the checksum ``check``:
    a file that begins otherwise is not to be used."""
    return _HEADER.pack(MAGIC, VERSION, check, of.fingerprint, digest, of.nbytes)
