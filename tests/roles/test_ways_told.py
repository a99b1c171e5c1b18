"""A worker says in its log and its load how its KV travels, and what would be faster."""

import logging

import pytest
from network import split_pair

from splitserve.ids import Incarnation, WorkerId
from splitserve.protocol.handoff import Attached
from splitserve.protocol.telemetry import LinkWay
from splitserve.protocol.whereabouts import Whereabouts
from splitserve.roles.links import LinkIdentity, Links
from splitserve.roles.loop import Outbox
from splitserve.roles.port import ConnId
from splitserve.transfer.base import PeerId, Route
from splitserve.transfer.connectors.memory import MemoryConnector
from splitserve.transfer.sharded import ShardedConnector

HERE = Whereabouts("a", "a 0")


class Slow(ShardedConnector):
    """Says that it goes over TCP."""

    def connect(self, peer: bytes) -> PeerId:
        return PeerId(1)

    def route(self, peer: PeerId) -> Route:
        return Route("tcp")


def links(connector: ShardedConnector) -> Links:
    identity = LinkIdentity(WorkerId("p"), Incarnation("p-1"), 1, "tcp", {}, "cpu", HERE)
    return Links(Outbox(), connector, identity)


def test_a_slow_way_is_a_warning_with_the_cure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "splitserve.roles.links")
    own = links(Slow(MemoryConnector))
    own.attached(ConnId(2), Attached(WorkerId("d"), Incarnation("d-1"), "l", {}, b"", HERE))
    told, warned = caplog.records
    assert told.levelno == logging.INFO
    assert told.getMessage().startswith("linked to decode worker d: connector tcp, way tcp")
    assert warned.levelno == logging.WARNING
    assert warned.getMessage() == (
        "KV goes to d by tcp though shm could be taken: "
        "leave out the connector: by itself it is shm between workers of one host"
    )
    assert own.ways() == (LinkWay("d", "tcp", "shm"),)


def test_the_load_tells_the_way_to_each_linked_worker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    network = split_pair()
    assert network.nodes["p"].worker.load().ways == (LinkWay("d", "memory", ""),)
    assert network.nodes["d"].worker.load().ways == ()
    network.kill("d")
    assert network.nodes["p"].worker.load().ways == ()
    assert caplog.records == []
