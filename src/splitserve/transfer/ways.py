"""Whether the way that KV takes to a peer is the fastest there is, and what to do if not. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from splitserve.protocol.whereabouts import Whereabouts
from splitserve.transfer.base import Route
from splitserve.transfer.registry import choose_connector

_BEST_FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "cpu": ("shm", "rdma", "tcp"),
    "cuda": ("cuda_ipc", "rdma", "tcp"),
}
"""Between two processes, by where their pools are."""

_WITHIN_A_HOST: Final = frozenset({"shm", "cuda_ipc"})


@dataclass(frozen=True, slots=True)
class Passed:
    """A faster way that is not taken. ``possible``: with other settings it would be."""

    way: str
    why: str
    possible: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """``way`` is that of ``connector`` to one peer, empty where it is unknown. ``passed`` has the
    fastest first."""

    connector: str
    way: str
    passed: tuple[Passed, ...]

    @property
    def faster(self) -> str:
        """The fastest way that is possible instead; empty where this is the fastest."""
        return next((one.way for one in self.passed if one.possible), "")

    def line(self, device: str) -> str:
        """For the log of a worker whose pool is on ``device``."""
        way = self.way or "not known"
        told = [f"connector {self.connector}, way {way} ({chosen_by(self.connector, device)})"]
        told += [f"not by {one.way}: {one.why}" for one in self.passed]
        return "; ".join(told)


def judge(connector: str, route: Route, device: str, own: Whereabouts, peer: Whereabouts) -> Judged:
    """``device`` is that of both pools."""
    order = _BEST_FIRST[device.partition(":")[0]]
    faster = order[: order.index(route.way)] if route.way in order else ()
    return Judged(
        connector,
        route.way,
        tuple(_passed(way, connector, route, own, peer) for way in faster),
    )


def chosen_by(connector: str, device: str) -> str:
    own = choose_connector(device)
    return (
        "the automatic choice" if connector == own else f"asked for; the automatic choice is {own}"
    )


def cure(connector: str, faster: str) -> str:
    """What lets KV take ``faster`` where ``connector`` does not."""
    if faster == "rdma":
        if connector == "nixl":
            return "let UCX take RDMA: see UCX_TLS and UCX_NET_DEVICES"
        return "choose connector nixl"
    leave_out = f"leave out the connector: by itself it is {faster} between workers of one host"
    if connector == "nixl":
        return f"{leave_out}; or let UCX take that: see UCX_TLS and kernel.yama.ptrace_scope"
    return leave_out


def _passed(way: str, connector: str, route: Route, own: Whereabouts, peer: Whereabouts) -> Passed:
    obstacle = _obstacle(way, own, peer)
    why = obstacle or route.passed.get(way, f"connector {connector} does not take it")
    return Passed(way, why, not obstacle)


def _obstacle(way: str, own: Whereabouts, peer: Whereabouts) -> str:
    """What no setting changes; empty where there is nothing of that kind."""
    if way in _WITHIN_A_HOST:
        if not own.host or not peer.host:
            return "nobody knows whether the peer is on this host"
        if own.host != peer.host:
            return "the peer is on another host"
        if own.reach != peer.reach:
            return "the peer is of another user or in another container"
    elif not own.rdma:
        return "no RDMA port is up here"
    elif not peer.rdma:
        return "no RDMA port is up at the peer"
    return ""
