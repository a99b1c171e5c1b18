"""Which blocks of one pool go where in another, and whether they may. Pure.

Both pools must have the same block shape; they may differ in number of blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.errors import BugError, ProtocolMismatch
from splitserve.protocol.memory import KVLayout


@dataclass(frozen=True, slots=True)
class BlockRun:
    """``count`` blocks, consecutive on both sides, from ``source`` to ``target``."""

    source: int
    target: int
    count: int


def check_compatible(source: KVLayout, target: KVLayout) -> None:
    """Raises ProtocolMismatch naming the first property that forbids copying between the two."""
    for name in ("dtype", "num_layers", "num_kv_heads", "head_dim", "block_size", "itemsize"):
        ours, theirs = getattr(source, name), getattr(target, name)
        if ours != theirs:
            raise ProtocolMismatch(
                f"KV layouts differ in {name}: {ours} here, {theirs} at the peer"
            )


def check_own(own: KVLayout, nbytes: int) -> None:
    """Raises BugError unless a pool of ``nbytes`` is as large as its layout says."""
    if own.pool_bytes > nbytes:
        raise BugError(f"the KV pool has {nbytes} bytes, not {own.pool_bytes}")


def check_peer(own: KVLayout, peer: KVLayout, nbytes: int) -> None:
    """Raises ProtocolMismatch unless a peer's pool of ``nbytes`` may be written to from ours: the
    layouts agree, and the pool is as large as its layout says."""
    check_compatible(own, peer)
    if peer.pool_bytes > nbytes:
        raise ProtocolMismatch(f"the peer's KV pool has {nbytes} bytes, not {peer.pool_bytes}")


def check_runs(runs: Sequence[BlockRun], source_blocks: int, target_blocks: int) -> None:
    """Raises BugError for blocks that either pool lacks: memory safety is not left to callers."""
    for run in runs:
        if (
            run.count < 1
            or not 0 <= run.source <= source_blocks - run.count
            or not 0 <= run.target <= target_blocks - run.count
        ):
            raise BugError(f"{run} leaves a pool of {source_blocks} or {target_blocks} blocks")


def check_layer(layer: int, layout: KVLayout) -> None:
    """Raises BugError for a layer that the pools lack."""
    if not 0 <= layer < layout.num_layers:
        raise BugError(f"there is no layer {layer} in a pool of {layout.num_layers}")


def block_runs(sources: Sequence[int], targets: Sequence[int]) -> list[BlockRun]:
    """Pairs of blocks, joined where both sides are consecutive, so that copies are few."""
    runs: list[BlockRun] = []
    for source, target in zip(sources, targets, strict=True):
        if runs:
            last = runs[-1]
            if source == last.source + last.count and target == last.target + last.count:
                runs[-1] = BlockRun(last.source, last.target, last.count + 1)
                continue
        runs.append(BlockRun(source, target, 1))
    return runs
