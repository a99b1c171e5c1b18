"""Who may ask: client keys, of which only hashes are kept."""

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from starlette.types import ASGIApp, Receive, Scope, Send

from splitserve.errors import ConfigError
from splitserve.frontend.failures import http_failure

ENVIRONMENT: Final = "SPLITSERVE_API_KEY"
OPEN_PATHS: Final = frozenset({"/health", "/ready", "/version", "/metrics"})
"""What probes and scrapers ask, which carry no key."""

_OWNER: Final = "splitserve.owner"
_LINE: Final = re.compile(r"([A-Za-z0-9._-]{1,64}):sha256:([0-9a-f]{64})")
_SCHEME: Final = b"bearer "
_MIN_KEY_BYTES: Final = 16
_MAX_KEY_BYTES: Final = 512
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class KeyRing:
    """Owners by the SHA-256 of their keys. Keys are random and long, so a fast hash is enough."""

    def __init__(self, owners: Mapping[str, str]) -> None:
        self._owners = [(bytes.fromhex(digest), owner) for digest, owner in owners.items()]

    @classmethod
    def load(cls, file: Path | None, environment: Mapping[str, str]) -> Self | None:
        """Keys of ``file`` (lines ``owner:sha256:<hex>``, ``#`` begins a comment) and the one in
        the environment; None when there is neither.

        Raises ConfigError for a file that cannot be read, is open to others or has another line in
        it, and for a key in the environment that is too short to be random.
        """
        owners = {} if file is None else dict(_lines(file))
        if alone := environment.get(ENVIRONMENT, "").strip():
            owners[_digest(_long_enough(alone.encode())).hex()] = "environment"
        if not owners and file is not None:
            raise ConfigError(f"{file} holds no key: make one with `splitserve key`")
        return cls(owners) if owners else None

    def owner(self, key: bytes) -> str | None:
        """Whose key it is. Takes as long for any key, so that time tells nothing of the hashes."""
        digest = _digest(key)
        found = None
        for known, owner in self._owners:
            if hmac.compare_digest(known, digest):
                found = owner
        return found


class Guard:
    """Answers 401 to whoever has no key; notes the owner in the scope for whoever comes next."""

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            owner = self._owner(scope)
            if owner is None:
                await _refuse(send)
                return
            scope[_OWNER] = owner
        await self._app(scope, receive, send)

    def _owner(self, scope: Scope) -> str | None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
            return None
        key = given[0][len(_SCHEME) :].strip()
        return self._keys.owner(key) if 0 < len(key) <= _MAX_KEY_BYTES else None


def guarded(app: ASGIApp, keys: KeyRing | None) -> ASGIApp:
    """``app`` itself where no keys are asked for."""
    return app if keys is None else Guard(app, keys)


def owner_of(scope: Scope) -> str:
    """Whose request it is; empty where keys are not asked for."""
    return str(scope.get(_OWNER, ""))


def new_key(owner: str) -> tuple[str, str]:
    """``(key, line for the key file)``. Raises ConfigError for an owner's name that is none."""
    key = f"sk-{secrets.token_urlsafe(32)}"
    line = f"{owner}:sha256:{_digest(key.encode()).hex()}"
    if _LINE.fullmatch(line) is None:
        raise ConfigError(f"{owner!r} is no name: use letters, digits, '.', '_' and '-'")
    return key, line


def keys_asked(file: Path | None, environment: Mapping[str, str]) -> bool:
    """Whether a process that was started so would ask for keys."""
    return file is not None or bool(environment.get(ENVIRONMENT, "").strip())


def append_key(file: Path, line: str) -> None:
    """Adds a line of ``new_key`` to a key file, which is made, for its owner alone, where there is
    none. Raises ConfigError when it cannot be written or is open to others."""
    try:
        number = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _refuse_open_to_others(file, number)
            size = os.fstat(number).st_size
            unfinished = size > 0 and os.pread(number, 1, size - 1) != b"\n"
            os.write(number, b"\n" * unfinished + line.encode() + b"\n")
        finally:
            os.close(number)
    except OSError as error:
        raise ConfigError(f"cannot write the key file {file}: {error.strerror}") from error


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            _refuse_open_to_others(file, opened.fileno())
            return opened.read()
    except OSError as error:
        raise ConfigError(f"cannot read the key file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the key file {file} is not text") from error


def _refuse_open_to_others(file: Path, number: int) -> None:
    if os.fstat(number).st_mode & _OTHERS:
        raise ConfigError(f"the key file {file} is open to others: chmod 600 {file}")


def _long_enough(key: bytes) -> bytes:
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ConfigError(
            f"{ENVIRONMENT} has {len(key)} bytes, a key has {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES}: "
            "make one with `splitserve key OWNER`"
        )
    return key


def _lines(file: Path) -> Iterable[tuple[str, str]]:
    text = _read(file)
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = _LINE.fullmatch(content)
        if match is None:
            # The line itself may be a key that somebody pasted: it is not shown.
            raise ConfigError(
                f"{file}, line {number}: not owner:sha256:<64 hex digits>; "
                "make such a line with `splitserve key OWNER`"
            )
        yield match[2], match[1]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


async def _refuse(send: Send) -> None:
    body = http_failure(
        401, "a valid API key is needed: Authorization: Bearer KEY", "invalid_api_key"
    )
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"www-authenticate", b"Bearer"),
    ]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
