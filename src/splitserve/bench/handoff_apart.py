"""``measure_handoff`` in a process of its own, whose end is of no matter.

NIXL's wheel crashes a process that has used it when that ends, after all is done: a library in it
(libnl) is taken down in the wrong order. A command would then end as if it had failed.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection

from splitserve.bench.handoff import HandoffReading, measure_handoff
from splitserve.bench.pool import Device
from splitserve.errors import SplitserveError, UnavailableError
from splitserve.protocol.memory import KVLayout


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
        while (said := ours.recv()) is not None:
            if isinstance(said, SplitserveError):
                raise said
            yield said
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
                pipe.send(reading)
            pipe.send(None)
        except SplitserveError as error:
            pipe.send(error)
