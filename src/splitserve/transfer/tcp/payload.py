"""A frame's payload on a wire, with a checksum behind it where one is asked for.

It is moved and summed in steps, so that the sum finds the bytes in the core's cache, where the copy
into or out of the socket has just had them. XXH3: CRC-32 takes longer than the copy.
"""

from collections.abc import Sequence
from typing import Final

from xxhash import xxh3_64

from splitserve.transfer.tcp.wire import Wire

STEP: Final = 1 << 18
"""Bytes. Two of them, here and in the socket, lie within a core's own cache."""

SUM_BYTES: Final = 8


def send_frame(wire: Wire, head: bytes, payload: Sequence[memoryview], summed: bool) -> None:
    """``head`` and ``payload``, and its checksum where it is ``summed``."""
    if not summed:
        wire.send([head, *payload])
        return
    total = xxh3_64()
    *steps, last = _steps(payload)
    for step in steps:
        wire.send([head, *step])
        head = b""
        _add(total, step)
    _add(total, last)
    wire.send([head, *last, total.digest()])


def receive_payload(wire: Wire, payload: Sequence[memoryview], summed: bool) -> bool:
    """Fills ``payload``. Whether that is what was sent: always so without a checksum."""
    if not summed:
        wire.receive(payload)
        return True
    total = xxh3_64()
    told = memoryview(bytearray(SUM_BYTES))
    steps = _steps(payload)
    for step in steps:
        wire.receive([*step, told] if step is steps[-1] else step)
        _add(total, step)
    return told == total.digest()


def _add(total: xxh3_64, pieces: Sequence[memoryview]) -> None:
    for piece in pieces:
        total.update(piece)


def _steps(payload: Sequence[memoryview]) -> list[list[memoryview]]:
    """The same bytes in lists of STEP; one at least."""
    steps: list[list[memoryview]] = [[]]
    room = STEP
    for piece in payload:
        left = piece
        while len(left) > room:
            if room:
                steps[-1].append(left[:room])
            left = left[room:]
            steps.append([])
            room = STEP
        steps[-1].append(left)
        room -= len(left)
    return steps
