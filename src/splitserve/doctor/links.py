"""How fast bytes get from one place of this machine to another, by each path there is."""

import multiprocessing
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final

import msgspec

from splitserve.bench.loopback import plain_socket
from splitserve.bench.quantile import quantile
from splitserve.doctor.findings import Link
from splitserve.doctor.link_process import (
    LAYOUT,
    PROMPT_BYTES,
    Failed,
    Measured,
    Opened,
    Said,
    copy_within,
    give,
    take,
)
from splitserve.doctor.places import MEMCPY, SOCKET, Wanted
from splitserve.errors import TransferFailed

LIMIT_S: Final = 60.0
"""For all of one path: NIXL has been seen to take 38 s for a first transfer."""

_END_S: Final = 5.0
"""How long a process may take to end before it is killed."""


Say = Callable[[str], None]


def measure_all(wanted: Iterable[Wanted], seconds: float, say: Say) -> tuple[Link, ...]:
    """Each for about ``seconds``, one after another; ``say`` is told which."""
    links = []
    for one in wanted:
        say(f"measuring {one.path}, {one.source.name} to {one.target.name}")
        links.append(measure(one, seconds))
    return tuple(links)


def measure(wanted: Wanted, seconds: float, limit_s: float = LIMIT_S) -> Link:
    """Never raises for what happens on the path: that is in the link."""
    try:
        said = _measured(wanted, seconds, time.monotonic() + limit_s)
    except TransferFailed as error:
        said = Failed(str(error), "failed")
    except (EOFError, OSError) as error:
        said = Failed(f"the measuring process ended ({type(error).__name__} {error})", "failed")
    ends = wanted.path, wanted.source.name, wanted.target.name
    if isinstance(said, Failed):
        return Link(*ends, said.state, why=said.why)
    return Link(*ends, "measured", said.gb_per_s, said.latency_ms, said.first_ms, said.way)


def _measured(wanted: Wanted, seconds: float, deadline: float) -> Measured | Failed:
    if wanted.path == SOCKET:
        return _socket(seconds)
    if wanted.path == MEMCPY:
        with _Process(copy_within, wanted.source, wanted.target, seconds) as process:
            return _measured_or_failed(process.hear(deadline))
    return _connector(wanted, seconds, deadline)


def _connector(wanted: Wanted, seconds: float, deadline: float) -> Measured | Failed:
    # Both start at once: NIXL takes seconds to open.
    with (
        _Process(take, wanted.path, wanted.target) as taking,
        _Process(give, wanted.path, wanted.source, seconds) as giving,
    ):
        opened = _decoded(taking.hear(deadline))
        if not isinstance(opened, Opened):
            return opened
        giving.tell(opened.description)
        result = _measured_or_failed(giving.hear(deadline))
        if isinstance(result, Failed):
            return result
        taking.tell(b"digest")
        if taking.hear(deadline) != result.digest:
            return Failed("other bytes arrived than were sent", "wrong")
        return result


def _socket(seconds: float) -> Measured:
    """A plain socket over loopback: what connector tcp is to be compared with."""
    with plain_socket(PROMPT_BYTES) as whole:
        rate = PROMPT_BYTES / _median_s(whole.send_s, seconds) / 1e9
    with plain_socket(LAYOUT.block_bytes) as block:
        latency_s = _median_s(block.send_s, seconds / 4)
    return Measured(rate, latency_s * 1e3, 0.0, "", b"")


def _median_s(once: Callable[[], float], seconds: float) -> float:
    once()
    end, times = time.monotonic() + seconds, [once()]
    while time.monotonic() < end:
        times.append(once())
    return quantile(times, 0.5)


def _decoded(data: bytes) -> Said:
    said: Said = msgspec.msgpack.decode(data, type=Said)
    return said


def _measured_or_failed(data: bytes) -> Measured | Failed:
    said = _decoded(data)
    if isinstance(said, Opened):
        raise TransferFailed("the measuring process said something else than it was asked")
    return said


class _Process:
    """A spawned process with a pipe to it. Ended when the block is left, killed if it does not."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        self._pipe: Connection = pipe
        self._process = context.Process(target=target, args=(*arguments, theirs))
        self._process.start()
        theirs.close()

    def __enter__(self) -> "_Process":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pipe.close()
        self._process.join(_END_S)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    def hear(self, deadline: float) -> bytes:
        """The next it says. Raises TransferFailed after ``deadline`` (monotonic), EOFError when it
        has ended."""
        if not self._pipe.poll(max(0.0, deadline - time.monotonic())):
            raise TransferFailed("it did not end in time")
        return bytes(self._pipe.recv_bytes())

    def tell(self, data: bytes) -> None:
        """Nothing happens where it has ended: what it said before can still be heard."""
        with suppress(ConnectionError):
            self._pipe.send_bytes(data)
