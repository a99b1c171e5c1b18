"""Which links of a machine are worth measuring. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.doctor.findings import NumaNode
from splitserve.transfer.registry import connectors_for

MEMCPY: Final = "memcpy"
SOCKET: Final = "socket"

_MOST_GPUS: Final = 4
"""Among more than so many GPUs only the links from the first one: each takes seconds."""


@dataclass(frozen=True, slots=True)
class End:
    """Where a pool lies. ``cores`` are those that its process is held to; empty: all."""

    name: str
    device: str
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """``path`` is MEMCPY, SOCKET or a connector."""

    path: str
    source: End
    target: End


def wanted_links(cores: Sequence[int], numa: Sequence[NumaNode], gpus: int) -> list[Wanted]:
    """Every path between each pair of ends that a split could use on one host."""
    ends = _host_ends(cores, numa)
    host = [(ends[0], end) for end in ends]
    return [
        Wanted(MEMCPY, ends[0], ends[0]),
        Wanted(SOCKET, ends[0], ends[0]),
        *(Wanted(path, *pair) for pair in host for path in connectors_for("cpu")),
        *(
            Wanted(path, source, target)
            for source, target in _gpu_pairs(gpus)
            for path in (MEMCPY, *connectors_for("cuda"))
        ),
    ]


def _host_ends(cores: Sequence[int], numa: Sequence[NumaNode]) -> list[End]:
    """One for each NUMA node that this process may run on, where there are several."""
    allowed = set(cores)
    nodes = [(node.number, tuple(sorted(allowed & set(node.cores)))) for node in numa]
    usable = [End(f"numa{number}", "cpu", own) for number, own in nodes if own]
    return usable if len(usable) > 1 else [End("cpu", "cpu")]


def _gpu_pairs(count: int) -> Iterator[tuple[End, End]]:
    gpus = [End(f"cuda:{number}", f"cuda:{number}") for number in range(count)]
    if count == 1:
        yield gpus[0], gpus[0]
    for number, source in enumerate(gpus if count <= _MOST_GPUS else gpus[:1]):
        for target in gpus[number + 1 :]:
            yield source, target
