"""Which bytes of one pool go where in another. Pure.

Both pools must have the same block shape; they may differ in number of blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.errors import ProtocolMismatch
from splitserve.protocol.memory import Copy, KVLayout


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


def layer_copies(
    runs: Sequence[BlockRun], source: KVLayout, target: KVLayout, layer: int
) -> list[Copy]:
    """The copies that move ``runs`` of one layer."""
    return [
        Copy(
            source.offset(layer, run.source),
            target.offset(layer, run.target),
            run.count * source.block_bytes,
        )
        for run in runs
    ]
