"""Asks a gateway whether it would serve a request now."""

import asyncio
from contextlib import suppress
from typing import Final

_TIMEOUT_S: Final = 2.0


async def is_ready(host: str, port: int) -> bool:
    """Whether ``GET /ready`` answers 200. Not being reachable is an answer too: no."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _status_of_ready(host, port) == 200
    except (OSError, TimeoutError, ValueError):
        return False


async def _status_of_ready(host: str, port: int) -> int:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /ready HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        version, _, rest = (await reader.readline()).decode("latin-1").partition(" ")
        if not version.startswith("HTTP/"):
            raise ValueError(f"not HTTP: {version!r}")
        return int(rest[:3])
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
