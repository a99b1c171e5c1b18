"""Which bytes of one pool go where in another, and whether they may. Pure.

The two pools may differ in number of blocks, in block size, and in which of the model's KV heads
they hold. All offsets are within one layer: a layer starts ``layer_bytes * layer`` into its pool,
on each side by its own layout.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

from splitserve.errors import BugError, ProtocolMismatch
from splitserve.protocol.memory import KVLayout

_MUST_AGREE: Final = ("dtype", "itemsize", "num_layers", "head_dim", "model_kv_heads")
"""What two layouts must have in common for any copy between them to mean something."""


class NoSharedHeads(ProtocolMismatch):
    """Between the two pools nothing is to be copied, though it could be."""


@dataclass(frozen=True, slots=True)
class Span:
    """``nbytes`` consecutive bytes from offset ``source`` of a layer to offset ``target``."""

    source: int
    target: int
    nbytes: int


def check_own(own: KVLayout, nbytes: int) -> None:
    """Raises BugError unless a pool of ``nbytes`` is as large as its layout says."""
    if own.pool_bytes > nbytes:
        raise BugError(f"the KV pool has {nbytes} bytes, not {own.pool_bytes}")


def check_reachable(own: KVLayout, peer: KVLayout, nbytes: int) -> None:
    """Raises ProtocolMismatch unless KV can be copied between our pool and a peer's of ``nbytes``;
    it names the first property that forbids it. It is NoSharedHeads when nothing else does."""
    for name in _MUST_AGREE:
        ours, theirs = getattr(own, name), getattr(peer, name)
        if ours != theirs:
            raise ProtocolMismatch(
                f"KV layouts differ in {name}: {ours} here, {theirs} at the peer"
            )
    heads = peer.kv_heads
    some = 0 <= heads.start < heads.stop <= peer.model_kv_heads
    if peer.block_size < 1 or peer.num_blocks < 1 or not some:
        raise ProtocolMismatch(f"the peer describes no KV pool: {peer}")
    if peer.pool_bytes > nbytes:
        raise ProtocolMismatch(f"the peer's KV pool has {nbytes} bytes, not {peer.pool_bytes}")
    if not shared_heads(own, peer):
        raise NoSharedHeads(f"no KV head is in both pools: {own.kv_heads} here, {heads} there")


def shared_heads(one: KVLayout, other: KVLayout) -> range:
    """Which of the model's KV heads both pools hold."""
    ours, theirs = one.kv_heads, other.kv_heads
    return range(max(ours.start, theirs.start), min(ours.stop, theirs.stop))


def check_spans(spans: Sequence[Span], source_layer_bytes: int, target_layer_bytes: int) -> None:
    """Raises BugError for bytes outside either layer: memory safety is not left to callers."""
    for span in spans:
        if (
            span.nbytes < 1
            or not 0 <= span.source <= source_layer_bytes - span.nbytes
            or not 0 <= span.target <= target_layer_bytes - span.nbytes
        ):
            raise BugError(
                f"{span} leaves a layer of {source_layer_bytes} or {target_layer_bytes} bytes"
            )


def uniform_piece(spans: Sequence[Span], *whole: int) -> int:
    """The largest piece into which all ``spans`` can be cut so that every offset is a whole number
    of pieces, and so is each of ``whole``: what a copy of equal pieces is made of. In bytes."""
    numbers = (number for span in spans for number in (span.source, span.target, span.nbytes))
    return gcd(*whole, *numbers)


def check_layer(layer: int, layout: KVLayout) -> None:
    """Raises BugError for a layer that the pools lack."""
    if not 0 <= layer < layout.num_layers:
        raise BugError(f"there is no layer {layer} in a pool of {layout.num_layers}")


def spans(
    source: KVLayout,
    target: KVLayout,
    tokens: range,
    source_blocks: Sequence[int],
    target_blocks: Sequence[int],
    source_first: int = 0,
    target_first: int = 0,
) -> list[Span]:
    """What moves ``tokens`` of a prompt, of the heads that both pools hold, for any layer.

    Token 0 is the prompt's first. ``source_blocks[0]`` holds the tokens from number
    ``source_first * source.block_size`` on, ``target_blocks[0]`` likewise by the target's own.
    Spans that follow each other on both sides are one. Raises BugError for tokens that lie in none
    of the blocks.
    """
    if not tokens:
        return []
    _check_held(tokens, source.block_size, source_first, len(source_blocks))
    _check_held(tokens, target.block_size, target_first, len(target_blocks))
    if _is_whole_blocks(source, target, tokens):
        first, stop = tokens.start // source.block_size, tokens.stop // source.block_size
        reads = source_blocks[first - source_first : stop - source_first]
        writes = target_blocks[first - target_first : stop - target_first]
        size = source.block_bytes
        pairs = zip(reads, writes, strict=True)
        return _joined((size, read * size, write * size) for read, write in pairs)
    parts = _parts(source.block_size, target.block_size, tokens)
    copied = _Copied(source, target)
    return _joined(
        (
            part.nbytes,
            source_blocks[source_block - source_first] * source.block_bytes + part.source,
            target_blocks[target_block - target_first] * target.block_bytes + part.target,
        )
        for source_block, target_block, slots in parts
        for part in copied.of(slots)
    )


_Slots = tuple[int, int, int]
"""First slot in the source's block, in the target's, and how many tokens."""


class _Copied:
    """Which bytes within a pair of blocks hold some slots of the shared heads."""

    def __init__(self, source: KVLayout, target: KVLayout) -> None:
        self._source = source
        self._target = target
        self._heads = shared_heads(source, target)
        self._known: dict[_Slots, list[Span]] = {}

    def of(self, slots: _Slots) -> list[Span]:
        """Offsets are from the start of either block. Most blocks of a prompt ask the same."""
        if slots not in self._known:
            self._known[slots] = _joined(self._rows(*slots))
        return self._known[slots]

    def _rows(self, source_slot: int, target_slot: int, count: int) -> Iterator["_Piece"]:
        row = self._source.head_dim * self._source.itemsize
        for half in range(2):
            for head in self._heads:
                yield (
                    count * row,
                    (_head(self._source, half, head) + source_slot) * row,
                    (_head(self._target, half, head) + target_slot) * row,
                )


_Piece = tuple[int, int, int]
"""Bytes, offset at the source, offset at the target."""


def _joined(pieces: Iterable[_Piece]) -> list[Span]:
    """Spans, those that follow each other on both sides made one."""
    made: list[Span] = []
    nbytes = source = target = 0
    for more, read, write in pieces:
        if read == source + nbytes and write == target + nbytes and nbytes:
            nbytes += more
            continue
        if nbytes:
            made.append(Span(source, target, nbytes))
        nbytes, source, target = more, read, write
    if nbytes:
        made.append(Span(source, target, nbytes))
    return made


def _parts(source_size: int, target_size: int, tokens: range) -> Iterator[tuple[int, int, _Slots]]:
    """``tokens`` cut where a block of either side ends: number of either block within the prompt,
    and the slots."""
    token = tokens.start
    while token < tokens.stop:
        source_block, source_slot = divmod(token, source_size)
        target_block, target_slot = divmod(token, target_size)
        count = min(source_size - source_slot, target_size - target_slot, tokens.stop - token)
        yield source_block, target_block, (source_slot, target_slot, count)
        token += count


def _is_whole_blocks(source: KVLayout, target: KVLayout, tokens: range) -> bool:
    """The usual case, which a long prompt must not wait for."""
    size = source.block_size
    alike = size == target.block_size and source.kv_heads == target.kv_heads
    return alike and tokens.start % size == 0 and tokens.stop % size == 0


def _head(layout: KVLayout, half: int, head: int) -> int:
    """Slots before those of one of the model's heads, within a block. ``half``: 0 is K, 1 is V."""
    return (half * layout.num_kv_heads + head - layout.first_kv_head) * layout.block_size


def _check_held(tokens: range, block_size: int, first: int, count: int) -> None:
    if (
        tokens.step != 1
        or tokens.start < first * block_size
        or tokens.stop > (first + count) * block_size
    ):
        raise BugError(f"{tokens} is not within blocks {first} to {first + count} of {block_size}")
