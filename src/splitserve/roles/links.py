"""The prefill worker's side of its links to decode workers."""

import logging
from dataclasses import dataclass

from splitserve.errors import PeerError
from splitserve.ids import Incarnation, WorkerId
from splitserve.protocol.control import Pair
from splitserve.protocol.fingerprint import differences
from splitserve.protocol.handoff import Attach, Attached
from splitserve.protocol.telemetry import LinkWay
from splitserve.protocol.whereabouts import UNKNOWN, Whereabouts
from splitserve.roles.port import ConnId, Port
from splitserve.transfer.base import PeerId
from splitserve.transfer.sharded import ShardedConnector
from splitserve.transfer.ways import Judged, cure, judge

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """``device`` is that of the KV pool."""

    worker: WorkerId
    incarnation: Incarnation
    pid: int
    connector: str
    fingerprint: dict[str, str]
    device: str = "cpu"
    whereabouts: Whereabouts = UNKNOWN


@dataclass(frozen=True, slots=True)
class Link:
    conn: ConnId
    name: str
    peer: PeerId
    way: Judged


class Links:
    """One link per decode worker. The server reconnects an address that was asked for once."""

    def __init__(self, port: Port, connector: ShardedConnector, identity: LinkIdentity) -> None:
        self._port = port
        self._connector = connector
        self._identity = identity
        self._asked: dict[WorkerId, str] = {}
        self._links: dict[WorkerId, Link] = {}

    def pair(self, message: Pair) -> None:
        """Opens a link unless one to that address is open or being opened."""
        if self._asked.get(message.worker) != message.address:
            self._asked[message.worker] = message.address
            self._port.open_link(message.worker, message.address)

    def opened(self, conn: ConnId) -> None:
        own = self._identity
        self._port.send(
            conn, Attach(own.worker, own.incarnation, own.pid, own.fingerprint, own.connector)
        )

    def attached(self, conn: ConnId, message: Attached) -> None:
        """The decode worker's pool is known: open it. What cannot be opened is said in the log."""
        differing = differences(self._identity.fingerprint, message.fingerprint)
        if differing:
            log.error("not pairing with %s: %s", message.worker, "; ".join(differing))
            return
        try:
            peer = self._connector.connect(message.peer)
        except PeerError as error:
            log.error("not pairing with %s: %s", message.worker, error)
            self._port.close(conn)
            return
        way = self._judge(peer, message.whereabouts)
        self._links[message.worker] = Link(conn, message.link, peer, way)
        log.info("linked to decode worker %s: %s", message.worker, way.line(self._identity.device))
        if way.faster:
            log.warning(
                "KV goes to %s by %s though %s could be taken: %s",
                message.worker,
                way.way,
                way.faster,
                cure(way.connector, way.faster),
            )

    def get(self, worker: WorkerId) -> Link | None:
        return self._links.get(worker)

    def lost(self, conn: ConnId) -> WorkerId | None:
        """Ends the link: no write to that peer is under way when this returns."""
        for worker, link in self._links.items():
            if link.conn == conn:
                del self._links[worker]
                self._connector.disconnect(link.peer)
                return worker
        return None

    def ways(self) -> tuple[LinkWay, ...]:
        """For those who ask how KV travels."""
        return tuple(
            LinkWay(worker, link.way.way, link.way.faster) for worker, link in self._links.items()
        )

    def conns(self) -> dict[ConnId, WorkerId]:
        return {link.conn: worker for worker, link in self._links.items()}

    def _judge(self, peer: PeerId, theirs: Whereabouts) -> Judged:
        own, route = self._identity, self._connector.route(peer)
        return judge(own.connector, route, own.device, own.whereabouts, theirs)
