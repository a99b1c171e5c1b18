"""The connectors by name. Add one: a file in ``connectors/`` and a line here."""

from typing import Final

from splitserve.errors import ConfigError
from splitserve.loading import load
from splitserve.transfer.base import Connector

CONNECTORS: Final = {
    "cuda_ipc": "splitserve.transfer.connectors.cuda_ipc:CudaIpcConnector",
    "memory": "splitserve.transfer.connectors.memory:MemoryConnector",
    "shm": "splitserve.transfer.connectors.shm:ShmConnector",
}


def create_connector(name: str) -> Connector:
    """Raises ConfigError for an unknown name."""
    if name not in CONNECTORS:
        raise ConfigError(f"unknown connector {name!r}: choose one of {', '.join(CONNECTORS)}")
    connector: Connector = load(CONNECTORS[name])()
    return connector


def choose_connector(device: str) -> str:
    """The connector between processes of one host for KV pools on ``device`` (``cpu``, ``cuda`` or
    ``cuda:N``)."""
    return "cuda_ipc" if device.partition(":")[0] == "cuda" else "shm"
