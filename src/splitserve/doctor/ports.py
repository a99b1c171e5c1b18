"""Ports that a topology needs free, or open."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from splitserve.doctor.findings import Port
from splitserve.launch.group import VLLM
from splitserve.launch.naming import NamedWorker, named_workers
from splitserve.launch.topology import Topology

_HERE: Final = "127.0.0.1"
_TIMEOUT_S: Final = 2.0
_SIDE_CHANNELS: Final = (
    ("side_channel_host", "side_channel_port"),
    ("p2p_host", "p2p_port"),
)
"""Facts of an instance that tell where its connector listens."""


@dataclass(frozen=True, slots=True)
class WantedPort:
    """As ``findings.Port``, not looked at yet."""

    host: str
    number: int
    user: str
    purpose: str
    must: Literal["free", "open"]


def wanted_ports(topology: Topology) -> list[WantedPort]:
    """Those that are named, each once; ports that are found at the start are free by then. Pure."""
    gateway = topology.gateway
    wanted = [WantedPort(gateway.host, gateway.port, "gateway", "http", "free")]
    for worker in named_workers(topology):
        if worker.group.engine == VLLM:
            wanted += _attached(worker) if worker.url else _launched(worker)
    return list(dict.fromkeys(port for port in wanted if port.number))


def look_at(wanted: WantedPort) -> Port:
    """Listens there for a moment, or connects."""
    host, number = wanted.host.strip("[]"), wanted.number
    right = _is_free(host, number) if wanted.must == "free" else _is_open(host, number)
    return Port(wanted.host, number, wanted.user, wanted.purpose, wanted.must, right)


def _launched(worker: NamedWorker) -> Iterator[WantedPort]:
    group = worker.group
    for first, purpose in ((group.port, "http"), (group.side_channel_port, "side channel")):
        if first is not None:
            yield WantedPort(_HERE, first + worker.number, worker.name, purpose, "free")


def _attached(worker: NamedWorker) -> Iterator[WantedPort]:
    facts = worker.group.facts
    secure = worker.url.startswith("https:")
    host, number = _place(worker.url, _HERE, 443 if secure else 80)
    yield WantedPort(host, number, worker.name, "http", "open")
    told = [
        (str(facts.get(host_fact, host)), _number(facts.get(port_fact, 0)))
        for host_fact, port_fact in _SIDE_CHANNELS
    ]
    told.append(_place(str(facts.get("bootstrap_addr", "")), host, 0))
    for where, side in told:
        yield WantedPort(where, side, worker.name, "side channel", "open")


def _place(url: str, host: str, number: int) -> tuple[str, int]:
    """Host and port of a URL; those given where it lacks them."""
    parts = urlsplit(url)
    try:
        return parts.hostname or host, parts.port or number
    except ValueError:
        return parts.hostname or host, 0


def _number(value: object) -> int:
    text = str(value)
    return int(text) if text.isdigit() else 0


def _is_free(host: str, number: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, number), family=family):
            return True
    except OSError:
        return False


def _is_open(host: str, number: int) -> bool:
    try:
        with socket.create_connection((host, number), timeout=_TIMEOUT_S):
            return True
    except OSError:
        return False
