"""Where a process takes connections that carry frames."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

from splitserve.errors import ConfigError
from splitserve.protocol.address import TcpAddress, UnixAddress
from splitserve.protocol.connection import Connection
from splitserve.protocol.doorway import HANDSHAKE_S, Doorway
from splitserve.protocol.gate import Gate


async def listen(
    address: UnixAddress | TcpAddress, accept: Callable[[], Connection], gate: Gate | None = None
) -> asyncio.Server:
    """Calls ``accept`` for each peer that passes ``gate``. Raises ConfigError when the address
    cannot be had, or others reach it and there is no secret."""
    gate = gate or Gate()
    gate.check_listen(address)
    loop = asyncio.get_running_loop()
    if isinstance(address, UnixAddress):
        return await loop.create_unix_server(accept, sock=private_socket(address.path))
    tls = None if gate.tls is None else gate.tls.listening
    try:
        return await loop.create_server(
            lambda: _entrance(accept, gate),
            address.host,
            address.port,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HANDSHAKE_S,
        )
    except OSError as error:
        raise ConfigError(
            f"cannot listen on tcp:{address.host}:{address.port}: {error.strerror}"
        ) from error


def _entrance(accept: Callable[[], Connection], gate: Gate) -> asyncio.Protocol:
    side = gate.listener()
    if side is None:
        return accept()

    def enter() -> Connection:
        gate.leave(doorway)
        return accept()

    def refused(peer: str, reason: str) -> None:
        gate.leave(doorway)
        gate.note_refused(peer, reason)

    doorway = Doorway(side, enter, refused, made=lambda door: gate.enter(door, door.refuse))
    return doorway


def private_socket(path: str) -> socket.socket:
    """Bound with mode 0600: the file's rights are the access control on one host.

    A socket file that nobody listens on is a leftover of a killed worker and is replaced. Raises
    ConfigError.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        previous = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(previous)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on unix:{path}: {error.strerror or error}") from error
    return sock


def _remove_stale(path: str) -> None:
    if not Path(path).exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
