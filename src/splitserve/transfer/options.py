"""What a connector between hosts may be told."""

import os
from dataclasses import dataclass, field

from splitserve.errors import ConfigError
from splitserve.protocol.address import is_wildcard
from splitserve.protocol.gate import Tls


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """``host`` is listened on and told to peers, so it must be one that they reach; ``port`` 0 is
    any free one. Each pair of workers uses ``streams`` connections, 4 unless there are fewer cores:
    more than those wait for each other. A peer of which nothing comes for ``stall_s`` seconds, in
    the middle of a transfer, counts as gone. ``checksums`` find what TCP's own do not; they cost
    both ends a look at every byte."""

    host: str = "127.0.0.1"
    port: int = 0
    streams: int = field(default_factory=lambda: min(4, len(os.sched_getaffinity(0))))
    stall_s: float = 2.0
    checksums: bool = True
    tls: Tls | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if is_wildcard(self.host):
            raise ConfigError(
                f"connector address {self.host!r} is no address that a peer can reach: name one of "
                "this host's own"
            )
        if not 1 <= self.streams <= 64:
            raise ConfigError(f"{self.streams} streams: it must be 1 to 64")
        if not 0 <= self.port < 65536 or self.stall_s <= 0:
            raise ConfigError(f"port {self.port} or stall time {self.stall_s} s is impossible")
