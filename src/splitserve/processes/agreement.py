"""Asks a peer for its fingerprint and compares, before a process starts to serve."""

import http.client
import json
import os
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from splitserve.errors import ConfigError, UnavailableError
from splitserve.frontend.access import ENVIRONMENT
from splitserve.protocol.fingerprint import differences

WAIT_S: Final = 30.0
"""How long a peer may take to come up: processes of one deployment start in any order."""

_PAUSE_S: Final = 0.25
_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 64 * 1024


def check_agreement(ours: Mapping[str, str], url: str, *, wait_s: float = WAIT_S) -> None:
    """Raises ConfigError that names the first part in which the peer at ``url`` differs, and both
    values; UnavailableError when it gives no fingerprint within ``wait_s`` seconds."""
    found = differences(ours, _fetch_patiently(url, time.monotonic() + wait_s))
    if found:
        raise ConfigError(f"--agree-with {url}: the settings differ in {'; '.join(found)}")


def _fetch_patiently(url: str, deadline: float) -> Mapping[str, str]:
    while True:
        try:
            return _fetch(url)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() >= deadline:
                raise UnavailableError(f"--agree-with {url}: no fingerprint: {error}") from error
        time.sleep(_PAUSE_S)


def _fetch(url: str) -> Mapping[str, str]:
    """GET {url}/fingerprint. Raises OSError, HTTPException or ValueError."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    try:
        key = os.environ.get(ENVIRONMENT, "")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", f"{parts.path.rstrip('/')}/fingerprint", headers=headers)
        answer = connection.getresponse()
        body = answer.read(_MAX_BYTES)
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ValueError(f"it answers {answer.status}")
    return _parts(json.loads(body))


def _parts(value: Any) -> Mapping[str, str]:
    parts = value.get("parts") if isinstance(value, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
        raise ValueError("its answer is no fingerprint")
    return parts
