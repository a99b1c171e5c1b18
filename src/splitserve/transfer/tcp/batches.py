"""A layer's spans cut into frames, and when the transfer that they make has ended."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Final

from splitserve.transfer.base import TransferEvent, TransferId
from splitserve.transfer.plan import Span
from splitserve.transfer.tcp.frames import MAX_PAYLOAD, MAX_PIECES, Kind

EndQueue = SimpleQueue[TransferEvent]

_SMALL: Final = 1 << 20
"""Bytes of a frame that are not cut further to keep all streams busy."""


@dataclass(frozen=True, slots=True)
class Part:
    """``nbytes`` at offset ``own`` of one of our layers and ``theirs`` of one of the peer's."""

    own: int
    theirs: int
    nbytes: int


def cut(spans: Sequence[Span], reading: bool, streams: int) -> list[list[Part]]:
    """What each frame of a layer carries: large ones, but a share for each of ``streams``, since
    the last layer of a prompt is waited for."""
    share = -(-sum(span.nbytes for span in spans) // streams)
    most = min(MAX_PAYLOAD, max(_SMALL, share))
    frames: list[list[Part]] = []
    room = 0
    for span in spans:
        own, theirs = (span.target, span.source) if reading else (span.source, span.target)
        done = 0
        while done < span.nbytes:
            if not room or len(frames[-1]) == MAX_PIECES:
                frames.append([])
                room = most
            size = min(room, span.nbytes - done)
            frames[-1].append(Part(own + done, theirs + done, size))
            done += size
            room -= size
    return frames


class Started:
    """One transfer of ``frames`` frames. Its end is told once all of them are settled, so that
    after it nothing of the transfer is under way. Threads of all streams use it."""

    def __init__(self, transfer: TransferId, frames: int, ends: EndQueue) -> None:
        self.error = ""
        self._transfer = transfer
        self._left = frames
        self._nbytes = 0
        self._ends = ends
        self._lock = threading.Lock()

    def settle(self, nbytes: int, error: str = "") -> None:
        """One frame has arrived with ``nbytes``, or never will."""
        with self._lock:
            self._left -= 1
            self._nbytes += nbytes
            self.error = self.error or error
            if self._left:
                return
        if self.error:
            self._ends.put(TransferEvent(self._transfer, "failed", 0, self.error))
        else:
            self._ends.put(TransferEvent(self._transfer, "done", self._nbytes))


@dataclass(slots=True)
class Batch:
    """One frame to be. The layers begin at ``own`` in our pool and at ``theirs`` in the peer's.
    ``number`` is that of the frame on its stream, ``again`` whether it was damaged once."""

    started: Started
    kind: Kind
    parts: Sequence[Part]
    own: int
    theirs: int
    number: int = 0
    again: bool = False
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.nbytes = sum(part.nbytes for part in self.parts)

    def pieces(self) -> list[tuple[int, int]]:
        """In the peer's pool."""
        return [(self.theirs + part.theirs, part.nbytes) for part in self.parts]

    def views(self, pool: memoryview) -> list[memoryview]:
        """In our pool."""
        start = self.own
        return [pool[start + part.own : start + part.own + part.nbytes] for part in self.parts]
