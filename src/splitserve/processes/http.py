"""Serving an ASGI application until the process is told to stop."""

import gc
import logging
import socket
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from splitserve.errors import ConfigError
from splitserve.lifecycle import StatusPipe
from splitserve.processes.http_limits import LimitedProtocol

log = logging.getLogger(__name__)

GRACE_S: Final = 3
"""How long a stopping process lets running answers go on."""

BACKLOG: Final = 2048
KEEP_ALIVE_S: Final = 75


class HttpServer(uvicorn.Server):
    """Says that it is ready once it accepts on ``listener``."""

    def __init__(self, app: ASGIApp, listener: socket.socket, status: StatusPipe) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=LimitedProtocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._listener = listener
        self._status = status

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What lives now lives for ever: the collector need not look at it between tokens.
        gc.collect()
        gc.freeze()
        host, port = self._listener.getsockname()[:2]
        log.info("listening on %s port %d", host, port)
        self._status.ready(port=port)


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """With ``reuse_port`` other processes of this user that ask for it too may listen on the same
    port; the kernel deals connections out among them. Raises ConfigError naming the address and why
    it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --port"
        ) from error
    listener.setblocking(False)
    return listener
