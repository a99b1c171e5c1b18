"""The prefill worker's side of its links to decode workers."""

import logging
from dataclasses import dataclass

from splitserve.errors import PeerError
from splitserve.ids import Incarnation, WorkerId
from splitserve.protocol.control import Pair
from splitserve.protocol.fingerprint import differences
from splitserve.protocol.handoff import Attach, Attached
from splitserve.roles.port import ConnId, Port
from splitserve.transfer.base import Connector, PeerId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    worker: WorkerId
    incarnation: Incarnation
    pid: int
    connector: str
    fingerprint: dict[str, str]


@dataclass(frozen=True, slots=True)
class Link:
    conn: ConnId
    name: str
    peer: PeerId


class Links:
    """One link per decode worker. The server reconnects an address that was asked for once."""

    def __init__(self, port: Port, connector: Connector, identity: LinkIdentity) -> None:
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
        self._links[message.worker] = Link(conn, message.link, peer)
        log.info("linked to decode worker %s", message.worker)

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

    def conns(self) -> dict[ConnId, WorkerId]:
        return {link.conn: worker for worker, link in self._links.items()}
