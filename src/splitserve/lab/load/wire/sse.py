"""Server-sent events from bytes, as the WHATWG event-stream rules say.

Lines end with LF, CR or CRLF; comments, ``event``, ``id`` and ``retry`` are understood; several
``data`` lines are one event; one blank after the colon is optional; a byte order mark may lead.
Reads may end anywhere. One thing goes beyond the rules: an event that the stream's end cuts off
before its empty line counts, since some servers forget that line.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import re
from dataclasses import dataclass
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """``t_s`` is when the read with the event's last byte came. ``data`` None is a comment."""

    t_s: float
    data: bytes | None
    name: str = ""


class SseParser:
    """Turns timed reads into events. Bytes are only cut at line ends, so UTF-8 stays whole."""

    __slots__ = ("_after_cr", "_at_start", "_data", "_last_s", "_name", "_tail")

    def __init__(self) -> None:
        self._tail = b""
        self._data: list[bytes] = []
        self._name = ""
        self._after_cr = False
        self._at_start = True
        self._last_s = 0.0

    def feed(self, t_s: float, data: bytes) -> list[SseEvent]:
        """The events that ``data``, read at ``t_s``, completes."""
        if not data:
            return []
        self._last_s = t_s
        if self._after_cr and data[0] == 0x0A:
            data = data[1:]
        # A CR ends its line at once: waiting for an LF that may never come would delay the event.
        self._after_cr = data.endswith(b"\r")
        *lines, self._tail = _LINE_END.split(self._tail + data)
        return self._take(lines)

    def finish(self) -> list[SseEvent]:
        """What the end of the stream leaves, at the time of the last read."""
        lines = [self._tail, b""] if self._tail else [b""]
        self._tail = b""
        return self._take(lines)

    def _take(self, lines: list[bytes]) -> list[SseEvent]:
        events: list[SseEvent] = []
        for line in lines:
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if not line:
                self._dispatch(events)
            elif line[0] == 0x3A:
                events.append(SseEvent(self._last_s, None))
            else:
                self._field(line)
        return events

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            events.append(SseEvent(self._last_s, b"\n".join(self._data), self._name))
        self._data = []
        self._name = ""

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode(errors="replace")
