"""Where processes of one deployment listen, and how to reach them."""

from typing import Final

from splitserve.errors import ConfigError
from splitserve.protocol.address import is_loopback

MAX_SOCKET_PATH_BYTES: Final = 100
"""Below Linux's limit of 107 (unix(7)), so that a name with a few more digits fits too."""


def unix_address(directory: str, name: str) -> str:
    """The address of ``name``'s socket in ``directory``. Raises ConfigError when it is too long."""
    path = f"{directory}/{name}.sock"
    if len(path.encode()) > MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"the socket path {path} is longer than {MAX_SOCKET_PATH_BYTES} bytes; "
            "set TMPDIR to a folder with a shorter name"
        )
    return f"unix:{path}"


def exposure_warning(host: str) -> str | None:
    """What there is to say about an API without keys that listens on ``host``."""
    if is_loopback(host):
        return None
    return (
        f"the gateway listens on {host} and asks for no API key: whoever reaches that address can "
        "use it"
    )


def http_url(host: str, port: int) -> str:
    """A URL that works on this machine for a server listening on ``host``."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    bracketed = f"[{reachable}]" if ":" in reachable and reachable[0] != "[" else reachable
    return f"http://{bracketed}:{port}"
