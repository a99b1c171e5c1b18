"""One load process: reads its work on stdin, writes a line for each record on stdout.

``python -m splitserve.lab.load.spread.process PARENT_PID``; ends with its parent.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import msgspec

from splitserve.errors import SplitserveError
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.driver import Progress, run_open
from splitserve.lab.load.record import RequestRecord, to_line
from splitserve.lab.load.spread.work import (
    LENGTH_BYTES,
    Begin,
    Ended,
    Ready,
    schedule_in,
    unpacked,
)
from splitserve.lab.load.wire.target import resolve
from splitserve.lifecycle import EXIT_UNAVAILABLE, end_with_parent


def process_command() -> tuple[str, ...]:
    """Starts one, tied to this process; for use from its main thread."""
    return (sys.executable, "-m", __name__, str(os.getpid()))


async def serve() -> None:
    """The whole life of a load process. Raises ConfigError, UnavailableError and OSError."""
    told = await _stdin()
    length = int.from_bytes(await told.readexactly(LENGTH_BYTES), "big")
    work = unpacked(await told.readexactly(length))
    telling = await _stdout()
    target, schedule = await resolve(work.url, work.headers), schedule_in(work)
    _tell(telling, Ready())
    begin = msgspec.json.decode(await told.readline(), type=Begin)
    labels = Labels(work.arm, work.run, begin.origin_s)
    client = LoadClient(target, work.asking, labels, work.limits)

    def keep(record: RequestRecord, progress: Progress) -> None:
        del progress
        # Buffered by the loop: a pipe that is full for a moment must not make requests late.
        telling.write(to_line(record))

    try:
        await run_open(client, schedule, work.patience, keep)
    finally:
        client.close()
    _tell(telling, Ended())
    await _flushed(telling, told)


def main(arguments: Sequence[str]) -> int:
    # Ctrl-C reaches the whole group; the parent is who ends its load processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        end_with_parent(int(arguments[0]))
        asyncio.run(serve())
    except (SplitserveError, OSError, asyncio.IncompleteReadError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_UNAVAILABLE
    return 0


def _tell(telling: asyncio.WriteTransport, word: Ready | Ended) -> None:
    telling.write(msgspec.json.encode(word) + b"\n")


async def _flushed(telling: asyncio.WriteTransport, told: asyncio.StreamReader) -> None:
    """Until the parent has all: it closes our stdin then."""
    await told.read()
    telling.close()


async def _stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _stdout() -> asyncio.WriteTransport:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    return transport


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
