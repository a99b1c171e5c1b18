"""Which blocks of either pool hold one prompt: as they might lie, and as they do."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.engine.kv.blocks import BlockPool
from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.memory import KVLayout
from splitserve.transfer.plan import Span, spans

PROMPTS: Final = 200
"""So many come and go before blocks lie as after much use."""

AT_ONCE: Final = 8
"""Answers that grow side by side meanwhile, where there is room."""

_GROWS: Final = 0.3
"""Chance that an answer gets another block while the next prompt comes."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The numbers of the blocks, in the prompt's order."""

    name: str
    sources: Sequence[int]
    targets: Sequence[int]

    def spans(self, layout: KVLayout) -> list[Span]:
        tokens = range(len(self.sources) * layout.block_size)
        return spans(layout, layout, tokens, self.sources, self.targets)


def placements(count: int, num_blocks: int) -> list[Placement]:
    """Of ``count`` blocks, at most half of ``num_blocks``: in one run on both sides, as two pools
    hand them out after much use, and each anywhere (the worst case)."""
    shuffled = random.Random(count)
    scattered = list(range(num_blocks))
    shuffled.shuffle(scattered)
    return [
        Placement("packed", range(count), range(num_blocks - count, num_blocks)),
        used(count, num_blocks),
        Placement("scattered", scattered[:count], scattered[-count:]),
    ]


def used(count: int, num_blocks: int) -> Placement:
    """The next prompt of ``count`` blocks, after others of up to twice as many, or half a pool."""
    lengths = random.Random(count)
    traffic = Traffic(num_blocks, AT_ONCE)
    for _ in range(PROMPTS):
        length = lengths.randint(1, 2 * count)
        traffic.prompt(min(length, num_blocks // 2))
    sources, targets = traffic.prompt(count)
    return Placement("used", sources, targets)


class Traffic:
    """Prompts that move from one pool to another of ``num_blocks``, with prefix caching and none in
    common; up to ``at_once`` answers grow and end in any order. Seeded."""

    def __init__(self, num_blocks: int, at_once: int) -> None:
        self._prefill = BlockPool(num_blocks)
        self._decode = BlockPool(num_blocks)
        self._at_once = at_once
        self._chance = random.Random(at_once)
        self._names = self._numbered()
        self._answering: list[list[int]] = []
        self._handoffs = 0

    def prompt(self, count: int) -> tuple[list[int], list[int]]:
        """The blocks of one more, at most half a pool, in both pools."""
        while self._answering and self._decode.room() < count:
            self._end_one()
        self._handoffs += 1
        handoff = HandoffId(f"h{self._handoffs}")
        sources = self._prefill.allocate(count) or []
        epoch, targets = self._decode.grant(handoff, WorkerId("p0"), count) or (0, [])
        for block in sources:
            self._prefill.register(block, next(self._names))
        self._prefill.free(sources)
        answer = self._decode.activate(handoff, epoch) or []
        for block in answer:
            self._decode.register(block, next(self._names))
        self._answering.append(answer)
        self._go_on()
        return sources, targets

    def _go_on(self) -> None:
        for answer in self._answering:
            if self._chance.random() < _GROWS:
                answer += self._decode.allocate(1) or []
        if len(self._answering) > self._at_once:
            self._end_one()

    def _end_one(self) -> None:
        self._decode.free(self._answering.pop(self._chance.randrange(len(self._answering))))

    @staticmethod
    def _numbered() -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            yield number.to_bytes(8, "big")
