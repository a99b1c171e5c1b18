"""Gives each worker the ports it has to be told. Pure."""

from collections.abc import Iterator, Sequence

from splitserve.errors import ConfigError
from splitserve.launch.topology import VLLM, WorkerGroup


def share_ports(
    groups: Sequence[WorkerGroup], free: Sequence[int], gateway: int
) -> list[tuple[int, int]]:
    """HTTP port and side channel port of each worker, in the groups' order; zeros for workers that
    have none. Named ones count up from the group's first; ``free`` gives the others, none twice and
    none that is the ``gateway``'s. Raises ConfigError for a port that two are to have."""
    named = [gateway, *_named(groups)]
    twice = sorted({port for port in named if port and named.count(port) > 1})
    if twice:
        raise ConfigError(
            f"workers: port {twice[0]} is named twice; port and side_channel_port count up from a "
            "group's first worker"
        )
    rest = iter([port for port in free if port not in named])
    return [
        (_port(group.port, number, rest), _port(group.side_channel_port, number, rest))
        if group.engine == VLLM
        else (0, 0)
        for group in groups
        for number in range(group.count)
    ]


def _named(groups: Sequence[WorkerGroup]) -> list[int]:
    return [
        first + number
        for group in groups
        for first in (group.port, group.side_channel_port)
        if first is not None
        for number in range(group.count)
    ]


def _port(first: int | None, number: int, rest: Iterator[int]) -> int:
    return next(rest) if first is None else first + number
