"""The mock server. Use it as ``async with MockServer(...) as server``."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Self

from splitserve.clock import Clock, monotonic
from splitserve.lab.mock.script import Ending, Played, Script

ScriptFor = Callable[[str, bytes], Script]
"""The script for a request's ``X-Request-Id`` and body."""


class MockServer:
    """Answers any POST by ``script_for``. ``played`` holds the last play of each request id.

    With ``tls`` it speaks HTTPS.
    """

    def __init__(
        self, script_for: ScriptFor, clock: Clock = monotonic, tls: ssl.SSLContext | None = None
    ) -> None:
        self.played: dict[str, Played] = {}
        self._script_for = script_for
        self._clock = clock
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Without a path."""
        assert self._server is not None
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                continue
        except (asyncio.IncompleteReadError, ConnectionError):
            # The client left, as it may at any time.
            return
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = _fields(head)
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        arrived_s = self._clock()
        request_id = fields.get("x-request-id", "")
        script = self._script_for(request_id, body)
        played = Played(request_id, arrived_s, [])
        self.played[request_id] = played
        for send in script.sends:
            # At least one turn of the loop: else writes of the same time would be one packet.
            # A timer is exact enough, since the time that counts is the one noted.
            await asyncio.sleep(max(0.0, arrived_s + send.at_s - self._clock()))
            played.sent_s.append(self._clock())
            writer.write(send.data)
        return await _end(script.ending, reader, writer)


async def _end(ending: Ending, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether another request may follow."""
    if ending is Ending.RESET:
        # Lingering for no time turns the close into a reset.
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    if ending is Ending.HOLD:
        await reader.read()
    return ending is Ending.KEEP


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
