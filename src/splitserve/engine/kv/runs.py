"""Which blocks to hand out so that they lie side by side. Pure.

KV is copied in runs of blocks that are neighbours on both sides, and every run costs a copy of its
own. Blocks taken just as they became free lie anywhere after a while: of the oldest ones, those are
taken that make the fewest runs.
"""

from bisect import bisect_left
from collections.abc import Iterable


def fewest_runs(candidates: Iterable[int], count: int) -> list[int]:
    """``count`` of the different ``candidates``, ascending; there must be so many.

    The shortest run that has room for all that is left to take gives it, else the longest is taken
    whole.
    """
    runs = _runs(sorted(candidates))
    runs.sort(key=len)
    taken: list[int] = []
    while len(runs[-1]) < count:
        longest = runs.pop()
        taken += longest
        count -= len(longest)
    fitting = runs[bisect_left(runs, count, key=len)]
    taken += fitting[:count]
    return sorted(taken)


def _runs(blocks: list[int]) -> list[range]:
    """``blocks`` ascend."""
    runs: list[range] = []
    for block in blocks:
        if runs and block == runs[-1].stop:
            runs[-1] = range(runs[-1].start, block + 1)
        else:
            runs.append(range(block, block + 1))
    return runs
