"""HTTP/1.1 on one connection, for timing: every read is stamped before anything looks into it.

Reads are parsed one turn of the event loop later. By then every socket that was readable at the
same moment has got its stamp, so that parsing one stream does not delay the time of another.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from splitserve.clock import Clock


class Reader(Protocol):
    """Gets one response. Times are of the connection's clock. ``on_end`` or ``on_lost`` is last."""

    def on_head(self, t_s: float, status: int, headers: dict[str, str]) -> None: ...

    def on_body(self, t_s: float, data: bytes) -> None: ...

    def on_end(self, t_s: float) -> None:
        """The response is whole."""

    def on_lost(self, t_s: float, error: str) -> None:
        """The connection ended; a body without a length ends this way too."""


class Connection(asyncio.Protocol):
    """One connection; one exchange at a time.

    ``on_idle`` is told when a response is whole and another request may follow.
    ``exchanges`` is how many requests were written.
    """

    def __init__(self, clock: Clock, on_idle: Callable[["Connection"], None]) -> None:
        self.closed = False
        self.exchanges = 0
        self.idle_since_s = clock()
        self._clock = clock
        self._on_idle = on_idle
        self._transport: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._reads: list[tuple[float, bytes]] = []
        self._now_s = 0.0
        self._headers: dict[str, str] = {}

    def start(self, request: bytes, reader: Reader) -> float:
        """Writes ``request``; what comes back goes to ``reader``. Gives the time of the write."""
        assert self._transport is not None
        assert self._reader is None, "one exchange at a time"
        self.exchanges += 1
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._headers = {}
        sent_s = self._clock()
        self._transport.write(request)
        return sent_s

    def abort(self) -> None:
        """Closes at once; the reader hears nothing more."""
        self._reader = None
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def busy(self) -> bool:
        """A response is still owed."""
        return self._reader is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reads.append((self._clock(), data))
        if len(self._reads) == 1:
            asyncio.get_running_loop().call_soon(self._parse)

    def connection_lost(self, exc: Exception | None) -> None:
        ended_s = self._clock()
        self.closed = True
        self._parse()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.on_lost(ended_s, f"{type(exc).__name__}: {exc}" if exc else "")

    def _parse(self) -> None:
        reads, self._reads = self._reads, []
        for self._now_s, data in reads:
            if self._parser is None:
                return
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                reader = self._reader
                self.abort()
                if reader is not None:
                    reader.on_lost(self._now_s, f"malformed HTTP: {error}")
                return

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._status()
        if self._reader is not None and status >= 200:
            self._reader.on_head(self._now_s, status, self._headers)

    def on_body(self, body: bytes) -> None:
        if self._reader is not None:
            self._reader.on_body(self._now_s, body)

    def on_message_complete(self) -> None:
        # An interim response (1xx) is a message of its own before the one that counts.
        if self._status() < 200:
            self._headers = {}
            return
        assert self._parser is not None
        reusable = self._parser.should_keep_alive()
        reader, self._reader, self._parser = self._reader, None, None
        if reader is not None:
            reader.on_end(self._now_s)
        if reusable and not self.closed:
            self.idle_since_s = self._clock()
            self._on_idle(self)
        elif self._transport is not None:
            self._transport.close()
            self.closed = True

    def _status(self) -> int:
        return 0 if self._parser is None else self._parser.get_status_code()
