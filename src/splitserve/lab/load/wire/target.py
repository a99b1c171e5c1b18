"""The endpoint under load, its name resolved once."""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from splitserve.errors import ConfigError, UnavailableError


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect, and what every request's head says.

    ``addresses`` are the host's, in the resolver's order; ``prefix`` leads every path;
    ``headers`` (such as ``Authorization``) go with every request.
    """

    host: str
    port: int
    addresses: tuple[str, ...]
    prefix: str = ""
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self, path: str, request_id: str, length: int) -> bytes:
        """The request's head, up to and with its empty line."""
        lines = [
            f"POST {self.prefix}{path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            f"X-Request-Id: {request_id}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            f"Content-Length: {length}",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def resolve(url: str, headers: Mapping[str, str] | None = None) -> Target:
    """``url`` is the server's base, without ``/v1``.

    Raises ConfigError for a URL that is none, UnavailableError for a host nobody knows.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise ConfigError(f"{url!r} is no http:// or https:// URL")
    if any("\r" in text or "\n" in text for pair in (headers or {}).items() for text in pair):
        raise ConfigError("a header must not contain a line end")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise UnavailableError(f"{parts.hostname} cannot be resolved: {error}") from error
    addresses = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    return Target(parts.hostname, port, addresses, parts.path.rstrip("/"), tls, headers or {})
