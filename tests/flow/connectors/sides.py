"""The two workers of a pair, as unlike each other as they may be."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster import Cluster

PREFILL = "p0"
DECODE = "d0"

_POOL = re.compile(r"/memfd:splitserve-(fake-)?kv ")


@dataclass(frozen=True)
class Side:
    """A worker's ``block`` in tokens, and how many ``shards`` its heads are split over."""

    block: int
    shards: int = 1

    @property
    def flags(self) -> tuple[str, ...]:
        sizes = {"--block-size": self.block, "--tensor-parallel-size": self.shards}
        return tuple(str(part) for flag in sizes.items() for part in flag)


@dataclass(frozen=True)
class Sides:
    prefill: Side
    decode: Side

    @property
    def flags(self) -> Mapping[str, tuple[str, ...]]:
        """Of each worker alone."""
        return {PREFILL: self.prefill.flags, DECODE: self.decode.flags}

    def check(self, cluster: Cluster) -> None:
        """Each worker has a KV pool for each of its shards."""
        there, here = (pools_of(cluster.workers[name].pid) for name in (DECODE, PREFILL))
        # Prefill may have those of decode open too, to write into them.
        counts = len(here - there), len(there)
        assert counts == (self.prefill.shards, self.decode.shards), counts


def pools_of(pid: int) -> set[int]:
    """Those that the process has open: numbers of the anonymous files that they are."""
    files = Path(f"/proc/{pid}/fd").iterdir()
    return {file.stat().st_ino for file in files if _POOL.match(os.path.realpath(file))}
