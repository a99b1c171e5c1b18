"""``measure_handoff`` in a process of its own, whose end is of no matter.

NIXL's wheel crashes a process that has used it when that ends, after all is done: a library in it
(libnl) is taken down in the wrong order. A command would then end as if it had failed.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from splitserve.bench.handoff import HandoffReading, measure_handoff
from splitserve.bench.pool import Device
from splitserve.errors import ConfigError, TransferFailed, UnavailableError
from splitserve.protocol.memory import KVLayout

_ERRORS: Final = {kind.__name__: kind for kind in (ConfigError, TransferFailed, UnavailableError)}
"""What ``measure_handoff`` and the connectors that it opens raise."""


class _Said(msgspec.Struct, frozen=True):
    """A reading, or the name of an error and its text."""

    reading: HandoffReading | None = None
    error: str = ""
    why: str = ""


def measure_apart(
    connector: str, layout: KVLayout, tokens: int, repeats: int, device: Device = "cpu"
) -> Iterator[HandoffReading]:
    """As ``measure_handoff``; raises what that raises."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    asked = connector, layout, tokens, repeats, device
    process = context.Process(target=_measure, args=(theirs, *asked))
    process.start()
    theirs.close()
    try:
        while (said := msgspec.msgpack.decode(ours.recv_bytes(), type=_Said | None)) is not None:
            if said.error:
                raise _ERRORS[said.error](said.why)
            assert said.reading is not None
            yield said.reading
    except EOFError as error:
        raise UnavailableError("the measuring process failed; see its message above") from error
    finally:
        ours.close()
        process.join()


def _measure(
    pipe: Connection,
    connector: str,
    layout: KVLayout,
    tokens: int,
    repeats: int,
    device: Device,
) -> None:
    """Sends each reading, then None; an error instead of what would come after it."""
    with suppress(ConnectionError):  # nobody listens any more
        try:
            for reading in measure_handoff(connector, layout, tokens, repeats, device):
                _say(pipe, _Said(reading))
            _say(pipe, None)
        except tuple(_ERRORS.values()) as error:
            _say(pipe, _Said(error=type(error).__name__, why=str(error)))


def _say(pipe: Connection, said: "_Said | None") -> None:
    pipe.send_bytes(msgspec.msgpack.encode(said))
