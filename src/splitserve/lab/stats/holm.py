"""Holm's step-down correction."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tested:
    """A hypothesis after correction: rejected iff ``adjusted`` <= alpha."""

    p: float
    adjusted: float
    rejected: bool


def holm(p_values: Mapping[str, float], alpha: float = 0.05) -> dict[str, Tested]:
    """All hypotheses of one family; the chance of any false rejection stays at ``alpha``."""
    result: dict[str, Tested] = {}
    worst = 0.0
    for place, (name, p) in enumerate(
        sorted(p_values.items(), key=lambda item: (item[1], item[0]))
    ):
        # A later hypothesis is never easier to reject than an earlier one.
        worst = max(worst, min(1.0, p * (len(p_values) - place)))
        result[name] = Tested(p, worst, worst <= alpha)
    return result
