"""In which order the runs of a study go."""

import random
from dataclasses import dataclass
from typing import Literal

Arm = Literal["A", "B"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One run: the ``position``-th of the series, arm ``arm`` of pair ``pair``, all from 0."""

    position: int
    pair: int
    arm: Arm


def interleaved(pairs: int, seed: int) -> tuple[Slot, ...]:
    """Two runs per pair, in blocks ABBA or BAAB drawn from ``seed``.

    Both arms of a block have the same mean time, so a linear drift cancels in it; arms that share
    hardware restart once per two runs. An odd last pair is half a block. In A/A pairs the letters
    are first and second run of the same configuration. ValueError without pairs.
    """
    if pairs < 1:
        raise ValueError("a study needs at least one pair")
    # Not cryptography: the order must be the same again from the same seed.
    draw = random.Random(seed)
    arms: list[Arm] = []
    while len(arms) < 2 * pairs:
        arms += draw.choice((("A", "B", "B", "A"), ("B", "A", "A", "B")))
    return tuple(Slot(i, i // 2, arm) for i, arm in enumerate(arms[: 2 * pairs]))
