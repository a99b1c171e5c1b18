"""Asks a gateway whether it would serve a request now, and what is not as it should be."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """``notes`` are lines for people: why it is not ready, or what is amiss although it is."""

    ready: bool
    notes: tuple[str, ...] = ()


async def ask_ready(host: str, port: int) -> Readiness:
    """What ``GET /ready`` answers. Not being reachable is an answer too: no."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            status, body = await _get_ready(host, port)
    except (OSError, EOFError, TimeoutError, ValueError):
        return Readiness(ready=False)
    return Readiness(status == 200, _notes(body))


def _notes(body: bytes) -> tuple[str, ...]:
    with suppress(ValueError):
        answer: Any = json.loads(body)
        if isinstance(answer, dict):
            reason, warnings = answer.get("reason"), answer.get("warnings")
            listed = warnings if isinstance(warnings, list) else [reason] if reason else []
            return tuple(map(str, listed))
    return ()


async def _get_ready(host: str, port: int) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET /ready HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        version, _, rest = head.decode("latin-1").partition(" ")
        if not version.startswith("HTTP/"):
            raise ValueError(f"not HTTP: {version!r}")
        return int(rest[:3]), body
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
