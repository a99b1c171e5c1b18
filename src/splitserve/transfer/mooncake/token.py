"""By which bytes a peer's process is recognised: a random token in memory that peers may read.

A description names a host and a port, and a port may belong to another process by the time that
somebody connects. Reading the token shows that the pool's own process answers.
"""

import ctypes
import mmap
import secrets
from itertools import cycle
from typing import Final

TOKEN_BYTES: Final = 16


class TokenPage:
    """A page of host memory: our own token first, then room for those of peers."""

    nbytes: Final = mmap.PAGESIZE

    def __init__(self) -> None:
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self._memory = mmap.mmap(-1, self.nbytes)
        self._memory[:TOKEN_BYTES] = self.token
        self._view: ctypes.Array[ctypes.c_char] | None = (ctypes.c_char * self.nbytes).from_buffer(
            self._memory
        )
        self.address = ctypes.addressof(self._view)
        # One after another: a read that was given up may still land in the one that it was given.
        self._places = cycle(range(TOKEN_BYTES, self.nbytes - TOKEN_BYTES + 1, TOKEN_BYTES))

    def room(self) -> int:
        """The address of zeros for a peer's token."""
        place = next(self._places)
        self._memory[place : place + TOKEN_BYTES] = bytes(TOKEN_BYTES)
        return self.address + place

    def read(self, room: int) -> bytes:
        """What has come there."""
        place = room - self.address
        return self._memory[place : place + TOKEN_BYTES]

    def close(self) -> None:
        """The library must not use the page any more."""
        self._view = None
        self._memory.close()
