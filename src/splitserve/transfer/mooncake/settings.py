"""The environment that Mooncake is configured by: it has no other way for what is needed here."""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from splitserve.errors import ConfigError

Way = Literal["tcp", "rdma"]

_FOR_EVER_S: Final = "1000000000"
_WAITS: Final = ("MC_TCP_PROGRESS_TIMEOUT_SEC", "MC_TCP_STATUS_TIMEOUT_SEC")
"""Read at every copy, so they stay set."""

_NEW_ENGINES: Final = ("MC_USE_TENT", "MC_USE_TEV1")


@dataclass(frozen=True, slots=True)
class Network:
    """``host`` is told to peers. ``streams`` are connections to each of them, over TCP."""

    host: str
    streams: int
    way: Way = "tcp"


def check(environment: Mapping[str, str], way: Way) -> None:
    """Raises ConfigError for a setting that breaks what the connector promises."""
    if environment.get("MC_TCP_PROTO") == "1":
        raise ConfigError(
            "MC_TCP_PROTO=1 makes Mooncake call a write done before it has arrived: unset it"
        )
    for name in _NEW_ENGINES:
        if name in environment:
            raise ConfigError(f"{name} chooses an engine that connector mooncake does not know")
    for name in _WAITS:
        if environment.get(name, _FOR_EVER_S) != _FOR_EVER_S:
            raise ConfigError(f"{name} lets Mooncake give up writes that may land later: unset it")
    if way == "rdma" and "MC_FORCE_TCP" in environment:
        raise ConfigError("MC_FORCE_TCP forbids the way rdma: unset it")


@contextmanager
def applied(environment: MutableMapping[str, str], network: Network) -> Iterator[None]:
    """An engine that is made within this is made for ``network``. What the user has set of pools,
    streams and log stays."""
    for name in _WAITS:
        environment[name] = _FOR_EVER_S
    wanted = {
        "MC_LOG_LEVEL": "WARNING",
        "MC_TCP_ENABLE_CONNECTION_POOL": "1",
        "MC_TCP_LANES_PER_PEER": str(network.streams),
    }
    if network.way == "tcp":
        # Else it takes RDMA wherever there is a device for it.
        wanted["MC_FORCE_TCP"] = "1"
    added = {name: value for name, value in wanted.items() if name not in environment}
    environment.update(added)
    try:
        yield
    finally:
        for name in added:
            environment.pop(name, None)
