"""A against itself: whether the means of pairs stay within noise."""

import math

from splitserve.lab.report.blocks import Text
from splitserve.lab.report.plots import Funnel, FunnelPoint
from splitserve.lab.report.results import StudyResults
from splitserve.lab.stats.distributions import t_quantile
from splitserve.lab.stats.interval import mean
from splitserve.lab.stats.paired import Paired
from splitserve.lab.verdict.comparison import compare
from splitserve.lab.verdict.improvement import TAIL_ITL, TTFT


def funnels(results: StudyResults) -> tuple[Funnel | Text, ...]:
    """One per latency; a sentence where the A/A pairs say nothing of noise."""
    control = compare(results.evidence.control)
    named = () if control is None else ((TAIL_ITL, control.tail_itl), (TTFT, control.ttft))
    drawn = tuple(
        Funnel(f"A against itself: {name}", _points(paired)) for name, paired in named if paired.sd
    )
    if drawn:
        return drawn
    says = "No funnel of A against itself: it needs two A/A pairs with finite, different times."
    return (Text(says),)


def _points(paired: Paired) -> tuple[FunnelPoint, ...]:
    assert paired.sd is not None
    reach = t_quantile(0.975, paired.pairs - 1) * paired.sd
    return tuple(
        FunnelPoint(k, mean(paired.differences[:k]), -reach / math.sqrt(k), reach / math.sqrt(k))
        for k in range(1, paired.pairs + 1)
    )
