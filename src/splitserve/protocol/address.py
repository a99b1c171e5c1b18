"""Addresses of workers: ``unix:/path`` on one host, ``tcp:host:port`` between hosts."""

from dataclasses import dataclass
from ipaddress import ip_address

from splitserve.errors import ConfigError


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: str


@dataclass(frozen=True, slots=True)
class TcpAddress:
    host: str
    port: int


def parse_address(text: str) -> UnixAddress | TcpAddress:
    """Raises ConfigError naming the accepted forms."""
    scheme, _, rest = text.partition(":")
    if scheme == "unix" and rest:
        return UnixAddress(rest)
    host, _, port = rest.rpartition(":")
    if scheme == "tcp" and host and port.isdigit() and int(port) < 65536:
        return TcpAddress(host.strip("[]"), int(port))
    raise ConfigError(f"address {text!r} is neither unix:/path nor tcp:host:port")


def is_wildcard(host: str) -> bool:
    """Whether ``host`` stands for all addresses of a machine, and so for none to a peer."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``. A name other than localhost counts as not."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
