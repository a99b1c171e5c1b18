"""GET requests to a running server, with the times between which it answered."""

import http.client
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from splitserve.errors import ConfigError, UnavailableError

TIMEOUT_S: Final = 5.0

_KEY: Final = "SPLITSERVE_API_KEY"
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """``date`` is the header. ``asked_s`` and ``heard_s`` are our clock's, in seconds since 1970,
    before the request and when the headers were there."""

    status: int
    body: bytes
    date: str | None
    asked_s: float
    heard_s: float

    def json(self) -> Mapping[str, Any]:
        """The object in it; empty when there is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def text(self) -> str:
        return self.body.decode("utf-8", errors="replace")


def check_url(url: str) -> None:
    """Raises ConfigError for one that cannot be asked."""
    parts = urlsplit(url)
    try:
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise ConfigError(f"TARGET {url!r} is not of the form http://host:port")


def ask(url: str, path: str, environ: Mapping[str, str] = os.environ) -> Answer:
    """GET ``url`` + ``path``, with the key that the environment holds. Raises UnavailableError when
    nobody answers."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    key = environ.get(_KEY, "").strip()
    headers = {"authorization": f"Bearer {key}"} if key else {}
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.connect()
        asked_s = time.time()
        connection.request("GET", parts.path.rstrip("/") + path, headers=headers)
        answer = connection.getresponse()
        heard_s = time.time()
        body = answer.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        raise UnavailableError(f"{url}{path} does not answer: {why}") from error
    finally:
        connection.close()
    return Answer(answer.status, body, answer.getheader("date"), asked_s, heard_s)
