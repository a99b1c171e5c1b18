"""Shares a machine's cores out among workers. Pure."""

from collections.abc import Sequence
from itertools import pairwise

from splitserve.errors import ConfigError
from splitserve.launch.topology import WorkerGroup


def share_cores(
    groups: Sequence[WorkerGroup], available: Sequence[int]
) -> tuple[list[tuple[int, ...]], list[str]]:
    """Each worker's cores, in the groups' order, and warnings.

    A group's own ``cores`` are divided among its workers; groups without share what is left. While
    there are enough cores, no two workers have one in common. Workers on GPUs without cores of
    their own get none, which leaves them all. Raises ConfigError for a core that is not
    ``available``.
    """
    named = {core for group in groups for core in group.cores}
    missing = sorted(named - set(available))
    if missing:
        raise ConfigError(
            f"workers: cores {missing} are not among the cores this process may use "
            f"({_written(available)})"
        )
    rest = [core for core in sorted(available) if core not in named] or sorted(available)
    unnamed = sum(group.count for group in groups if _takes_share(group))
    free_shares = iter(divide(rest, unnamed))
    shares: list[tuple[int, ...]] = []
    for group in groups:
        own = free_shares if _takes_share(group) else iter(divide(sorted(group.cores), group.count))
        shares += [next(own) for _ in range(group.count)]
    return shares, _warnings([share for share in shares if share])


def _takes_share(group: WorkerGroup) -> bool:
    return not group.cores and group.device == "cpu"


def divide(cores: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """``cores`` in ``parts`` runs whose lengths differ by one at most; short ones go round."""
    if len(cores) < parts:
        return [(cores[part % len(cores)],) for part in range(parts)] if cores else [()] * parts
    bounds = [part * len(cores) // max(parts, 1) for part in range(parts + 1)]
    return [tuple(cores[first:end]) for first, end in pairwise(bounds)]


def _warnings(shares: Sequence[tuple[int, ...]]) -> list[str]:
    taken = [core for share in shares for core in share]
    if len(set(taken)) == len(taken):
        return []
    return [
        f"{len(shares)} workers share {len(set(taken))} cores: they will slow each other down, "
        "so times measured here say little about a machine with a core for each"
    ]


def _written(cores: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(cores)))
