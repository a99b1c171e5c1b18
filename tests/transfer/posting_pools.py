"""Pools for tests of connectors with a posting thread: one here, one in a process that can be
frozen or killed."""

import ctypes
import hashlib
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from splitserve.errors import TransferFailed
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import Connector, PeerId, TransferEvent
from splitserve.transfer.plan import Span

LAYOUT = KVLayout("bfloat16", 3, 8, 64, 16, 256, 2)
"""24 MiB, more than any socket holds."""

ALL = Span(0, 0, LAYOUT.layer_bytes)
PATIENCE_S = 0.2

ONLY_TCP = "tcp,cuda_copy" if Path("/dev/nvidiactl").exists() else "tcp"
"""For UCX_TLS. Where there is a GPU, NIXL wants to be able to reach its memory."""

CHILD = """
import ctypes, hashlib, mmap, sys
import msgspec
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.registry import create_connector
layout = msgspec.json.decode(sys.argv[1], type=KVLayout)
memory = mmap.mmap(-1, layout.pool_bytes)
view = (ctypes.c_char * layout.pool_bytes).from_buffer(memory)
connector = create_connector(sys.argv[2])
connector.open(MemoryRegion(ctypes.addressof(view), layout.pool_bytes), layout)
print(connector.describe().hex(), flush=True)
for line in sys.stdin:
    if line.startswith("fill"):
        memory[:] = bytes([int(line.split()[1])]) * layout.pool_bytes
    print(hashlib.sha256(memory).hexdigest(), flush=True)
connector.close()
"""


class OtherProcess:
    """A worker's pool of zeros in a process of its own."""

    def __init__(self, connector: str) -> None:
        layout = msgspec.json.encode(LAYOUT).decode()
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, layout, connector],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.description = bytes.fromhex(self.process.stdout.readline())

    def ask(self, line: str) -> str:
        """The digest of its pool, after ``line``; empty when it has died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self.process.stdout.readline().strip()

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.kill()
        self.process.communicate()


@dataclass
class Rig:
    connector: Connector
    memory: mmap.mmap

    def until(self, found: Callable[[list[TransferEvent]], bool]) -> list[TransferEvent]:
        """What ``poll`` told until ``found`` is true of it."""
        told: list[TransferEvent] = []
        while not found(told):
            told += self.connector.poll()
        return told

    def ends(self, count: int) -> list[TransferEvent]:
        return self.until(lambda told: len(told) == count)

    def reconnected(self, description: bytes) -> PeerId:
        """Connects once what was given up has ended."""
        while True:
            try:
                return self.connector.connect(description)
            except TransferFailed as error:
                assert "not ended yet" in str(error)  # noqa: PT017 - others would be raised above


@contextmanager
def opened(connector: Connector, fill: int) -> Iterator[Rig]:
    memory = mmap.mmap(-1, LAYOUT.pool_bytes)
    memory[:] = bytes([fill]) * LAYOUT.pool_bytes
    view = (ctypes.c_char * LAYOUT.pool_bytes).from_buffer(memory)
    connector.open(MemoryRegion(ctypes.addressof(view), LAYOUT.pool_bytes), LAYOUT)
    yield Rig(connector, memory)
    connector.close()
    del view
    memory.close()


def filled(value: int) -> str:
    return hashlib.sha256(bytes([value]) * LAYOUT.pool_bytes).hexdigest()
