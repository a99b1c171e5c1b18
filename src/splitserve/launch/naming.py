"""Gives each worker its name. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from splitserve.launch.topology import Topology, WorkerGroup


@dataclass(frozen=True, slots=True)
class NamedWorker:
    """``number`` counts within the group; ``url`` is empty for one that will be started."""

    name: str
    group: WorkerGroup
    number: int
    url: str


def named_workers(topology: Topology) -> Iterator[NamedWorker]:
    """Every worker, numbered within its role (``prefill-0``)."""
    used: Counter[str] = Counter()
    for group in topology.workers:
        for number, url in enumerate(group.url or [""] * group.count):
            yield NamedWorker(f"{group.role}-{used[group.role]}", group, number, url)
            used[group.role] += 1
