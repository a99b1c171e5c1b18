"""KV pools on GPUs for tests. As a program: the receiving side, asked over stdin.

``new LAYOUT`` replaces its pool and answers with what its connector describes, ``write BYTES``
fills it, ``read`` answers with its bytes. All in hexadecimal digits, one line each.
"""

import subprocess
import sys

import msgspec
import torch

from splitserve.bench.device_pool import DevicePool, places
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.registry import create_connector


class BytesPool(DevicePool):
    """A pool whose bytes a test sets and sees."""

    def write(self, data: bytes) -> None:
        self.memory.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        torch.cuda.synchronize(self.memory.device)

    def read(self) -> bytes:
        return bytes(self.memory.cpu().numpy())


class DeviceSource(BytesPool):
    """On the pushing side's GPU."""

    def __init__(self, layout: KVLayout) -> None:
        super().__init__(layout, *places())


class DeviceTarget:
    """A child process with one pool at a time, on the receiving side's GPU."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def new(self, layout: KVLayout) -> bytes:
        """A fresh pool of zeros, described."""
        return bytes.fromhex(self._ask("new " + msgspec.msgpack.encode(layout).hex()))

    def write(self, data: bytes) -> None:
        self._ask("write " + data.hex())

    def read(self) -> bytes:
        return bytes.fromhex(self._ask("read"))

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()


def serve() -> None:
    pool: BytesPool | None = None
    for line in sys.stdin:
        word, _, argument = line.partition(" ")
        if word == "new":
            if pool is not None:
                pool.close()
            layout = msgspec.msgpack.decode(bytes.fromhex(argument), type=KVLayout)
            _, index = places()
            pool = BytesPool(layout, index, index)
            connector = create_connector("cuda_ipc")
            connector.open(pool.region, layout)
            print(connector.describe().hex(), flush=True)
        elif pool is not None and word == "write":
            pool.write(bytes.fromhex(argument))
            print(flush=True)
        elif pool is not None:
            print(pool.read().hex(), flush=True)


if __name__ == "__main__":
    serve()
