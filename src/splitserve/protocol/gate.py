"""What TCP connections between processes must pass: a shared secret, and TLS where it is asked for.

Unix sockets pass as they are: the rights of the file are their access control.
"""

import logging
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from splitserve.errors import ConfigError
from splitserve.protocol.address import TcpAddress, UnixAddress, is_loopback
from splitserve.protocol.handshake import NONCE_BYTES, ListenerSide, OpenerSide
from splitserve.secret_files import secret_of

log: Final = logging.getLogger(__name__)

SECRET_VARIABLE: Final = "SPLITSERVE_SECRET"
MIN_SECRET_BYTES: Final = 16
MAX_UNPROVEN: Final = 128
"""Connections that may be proving themselves at once; the oldest makes room."""

_MAX_LOGGED: Final = 1024


@dataclass(frozen=True, slots=True)
class GateFiles:
    """Field names are those of the flags. The three of TLS go together: a certificate with its
    key, and the authority that signed those of all processes."""

    secret_file: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """Contexts for the two ends; each asks the other for a certificate."""

    listening: ssl.SSLContext
    opening: ssl.SSLContext


class Gate:
    """``secret`` None asks for none. ``refused`` counts peers that were turned away."""

    def __init__(self, secret: bytes | None = None, tls: Tls | None = None) -> None:
        self.refused = 0
        self.tls = tls
        self._secret = secret
        self._logged: set[str] = set()
        self._unproven: dict[object, Callable[[str], None]] = {}

    @classmethod
    def load(cls, files: GateFiles, environment: Mapping[str, str]) -> "Gate":
        """The secret of the file, else of SPLITSERVE_SECRET. Raises ConfigError for a file that
        cannot be read or is open to others, a short secret, and half of TLS."""
        return cls(
            secret_of(
                "--secret-file",
                files.secret_file,
                SECRET_VARIABLE,
                environment,
                min_bytes=MIN_SECRET_BYTES,
            ),
            _tls(files),
        )

    def check_listen(self, address: UnixAddress | TcpAddress) -> None:
        """Raises ConfigError for an address that others reach, with nothing to keep them out."""
        if isinstance(address, TcpAddress) and self._secret is None:
            if is_loopback(address.host):
                return
            raise ConfigError(
                f"tcp:{address.host}:{address.port} can be reached from other machines and there "
                f"is no shared secret: give all processes one by --secret-file or {SECRET_VARIABLE}"
            )

    def listener(self) -> ListenerSide | None:
        """For one connection; None where no proof is asked for."""
        return None if self._secret is None else ListenerSide(self._secret, _nonce())

    def opener(self) -> OpenerSide | None:
        """For one connection; None where no proof is asked for."""
        return None if self._secret is None else OpenerSide(self._secret, _nonce())

    def enter(self, who: object, refuse: Callable[[str], None]) -> None:
        """``who`` begins to prove itself. Calls the ``refuse`` of the oldest when it is one too
        many: honest peers need milliseconds, so the oldest is the least likely to be one."""
        self._unproven[who] = refuse
        if len(self._unproven) > MAX_UNPROVEN:
            oldest = next(iter(self._unproven))
            self._unproven.pop(oldest)("too many connections prove nothing")

    def leave(self, who: object) -> None:
        self._unproven.pop(who, None)

    def note_refused(self, peer: str, reason: str) -> None:
        """Counts; logs once for each ``peer`` (an address without its port)."""
        self.refused += 1
        if peer not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(peer)
            log.warning("refused a connection from %s: %s", peer, reason)


def _nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


def _tls(files: GateFiles) -> Tls | None:
    cert, key, authority = files.tls_cert, files.tls_key, files.tls_ca
    if cert is None and key is None and authority is None:
        return None
    if cert is None or key is None or authority is None:
        raise ConfigError("--tls-cert, --tls-key and --tls-ca go together: give all three")
    listening, opening = (
        ssl.SSLContext(side) for side in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    )
    listening.verify_mode = ssl.CERT_REQUIRED
    for context in (listening, opening):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_cert_chain(cert, key)
            context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                f"--tls-cert {cert}, --tls-key {key}, --tls-ca {authority}: "
                f"{error.strerror or error}"
            ) from error
    return Tls(listening, opening)
