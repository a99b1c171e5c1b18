"""Copies by Mooncake's transfer engine: over TCP, or RDMA (no setting asks for that yet).

Pools lie in host memory. Whoever reaches the ports that Mooncake opens (it chooses them itself) may
read and write the pool: it knows no secret and no TLS, so it is for networks that one trusts.

Over TCP the receiving process itself puts the bytes in place. So a writer that dies while its peer
is frozen may leave bytes that land when the peer thaws.
"""

from collections.abc import Callable

from splitserve.errors import ConfigError
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import PeerId, Route
from splitserve.transfer.mooncake.agent import MooncakeAgent
from splitserve.transfer.mooncake.settings import Network, Way
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.plan import check_own
from splitserve.transfer.posting.connector import PATIENCE_S, Description, PostingConnector
from splitserve.transfer.posting.started import Agent


class MooncakeConnector(PostingConnector[Description]):
    """Between any two hosts that reach each other."""

    def __init__(
        self,
        options: NetworkOptions | None = None,
        way: Way = "tcp",
        open_agent: Callable[[MemoryRegion, Network], Agent] = MooncakeAgent,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Of ``options`` it uses the host and the number of streams; its default is this host's
        loopback address. Raises ConfigError for TLS and for a port, which Mooncake cannot do."""
        super().__init__("mooncake", Description, patience_s)
        options = options or NetworkOptions()
        if options.tls is not None:
            raise ConfigError("connector mooncake cannot encrypt: choose connector tcp")
        if options.port:
            raise ConfigError(
                f"connector mooncake chooses its ports itself and cannot use {options.port}"
            )
        self._network = Network(options.host, options.streams, way)
        self._open_agent = open_agent

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        check_own(layout, region.nbytes)
        if region.device != "cpu":
            raise ConfigError(
                f"connector mooncake needs a KV pool in host memory, this one is on "
                f"{region.device}: choose connector nixl"
            )

        def describe(name: str, metadata: bytes) -> Description:
            return Description(name, metadata, region.device, region.address, region.nbytes, layout)

        self._open(lambda: self._open_agent(region, self._network), None, describe)

    def route(self, peer: PeerId) -> Route:
        self._peers.known(peer)
        return Route(self._network.way, {"rdma": "Mooncake was told to go over TCP"})
