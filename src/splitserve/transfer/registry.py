"""The connectors by name. Add one: a file in ``connectors/`` and a line here."""

from typing import Final

from splitserve.errors import ConfigError
from splitserve.loading import load
from splitserve.transfer.base import Connector
from splitserve.transfer.options import NetworkOptions

CONNECTORS: Final = {
    "cuda_ipc": "splitserve.transfer.connectors.cuda_ipc:CudaIpcConnector",
    "memory": "splitserve.transfer.connectors.memory:MemoryConnector",
    "mooncake": "splitserve.transfer.connectors.mooncake:MooncakeConnector",
    "nixl": "splitserve.transfer.connectors.nixl:NixlConnector",
    "shm": "splitserve.transfer.connectors.shm:ShmConnector",
    "tcp": "splitserve.transfer.connectors.tcp:TcpConnector",
}


_REACHING: Final = {"cpu": ("shm", "tcp", "nixl", "mooncake"), "cuda": ("cuda_ipc", "nixl")}

_BETWEEN_HOSTS: Final = frozenset({"mooncake", "tcp"})
"""These take ``NetworkOptions``."""

PACKAGES: Final = {"mooncake": "mooncake.engine", "nixl": "nixl"}
"""What connectors with a package of their own import when they are opened."""

_EXTRAS: Final = {"tcp": "engine"}
"""Which extra has what a connector imports."""


def create_connector(name: str, network: NetworkOptions | None = None) -> Connector:
    """``network`` is for connectors between hosts; None is their default.

    Raises ConfigError for an unknown name and for a package that is not installed.
    """
    if name not in CONNECTORS:
        raise ConfigError(f"unknown connector {name!r}: choose one of {', '.join(CONNECTORS)}")
    try:
        make = load(CONNECTORS[name])
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(name, name)
        raise ConfigError(
            f"connector {name} needs {error.name}: pip install 'splitserve[{extra}]'"
        ) from error
    connector: Connector = make(network) if name in _BETWEEN_HOSTS else make()
    return connector


def connectors_for(device: str) -> tuple[str, ...]:
    """The connectors between processes that reach KV pools on ``device`` (``cpu``, ``cuda`` or
    ``cuda:N``), the one for processes of one host first."""
    return _REACHING[device.partition(":")[0]]


def choose_connector(device: str) -> str:
    """The connector between processes of one host for KV pools on ``device``."""
    return connectors_for(device)[0]
