"""Whether the target cell improves: the union hypothesis over tail ITL and TTFT.

Holm over the two keeps the chance of a false improvement at alpha. Tests are two-sided and the
direction is asked for, so that "improved" and an interval that leaves out 1 always agree.
"""

import math
from dataclasses import dataclass

from splitserve.lab.stats.holm import Tested, holm
from splitserve.lab.stats.paired import Paired
from splitserve.lab.stats.power import pairs_needed
from splitserve.lab.stats.shares import share_lower
from splitserve.lab.verdict.comparison import Comparison
from splitserve.lab.verdict.rules import Rules

TAIL_ITL = "tail ITL"
TTFT = "TTFT"


@dataclass(frozen=True, slots=True)
class Improvement:
    """``improved``: names of what got better by the smallest effect of interest or more;
    ``ruled_out``: of what is shown not to.

    ``slo_gain``: attainment rose. ``possible``: the intervals still allow both; without it no
    further pair would help. ``meets_slo``: B's attainment is shown to reach the target.
    ``more_pairs``: so many more would show the smallest effect of interest, as far as is known.
    """

    tests: dict[str, Tested]
    improved: frozenset[str]
    ruled_out: frozenset[str]
    slo_gain: bool
    possible: bool
    meets_slo: bool
    more_pairs: int | None

    @property
    def shown(self) -> bool:
        """Better in time and in the share of requests that keep the SLO."""
        return bool(self.improved) and self.slo_gain


def latencies(compared: Comparison, rules: Rules) -> dict[str, tuple[Paired, float]]:
    """Both latencies with the logarithm of their smallest effect, negative."""
    return {
        TAIL_ITL: (compared.tail_itl, math.log(rules.effects.tail_itl_ratio)),
        TTFT: (compared.ttft, math.log(rules.effects.ttft_ratio)),
    }


def improvement(compared: Comparison, rules: Rules) -> Improvement:
    """Of B over A."""
    both, confidence = latencies(compared, rules), 1 - rules.alpha
    tests = holm({n: min(1.0, 2 * d.p_below()) for n, (d, _) in both.items()}, rules.alpha)
    improved = frozenset(
        n for n, (d, least) in both.items() if tests[n].rejected and d.point <= least
    )
    share = compared.attainment.interval(confidence)
    ruled_out = frozenset(n for n, (d, least) in both.items() if d.interval(confidence).low > least)
    faster_possible = bool(improved) or len(ruled_out) < len(both)
    return Improvement(
        tests=tests,
        improved=improved,
        ruled_out=ruled_out,
        slo_gain=share.low > 0,
        possible=faster_possible and (share.low > 0 or share.high >= rules.effects.attainment),
        meets_slo=share_lower([p.b.attained for p in compared.pairs], confidence)
        >= rules.slo.attainment,
        more_pairs=_more_pairs(compared, rules, improved),
    )


def _more_pairs(compared: Comparison, rules: Rules, improved: frozenset[str]) -> int | None:
    """Pairs still lacking for the latency that needs fewest, and for attainment."""
    wanted = [d for n, d in latencies(compared, rules).items() if not improved or n in improved]
    faster = [_needed(d, least, rules.alpha) for d, least in wanted]
    share = _needed(compared.attainment, rules.effects.attainment, rules.alpha)
    known = [n for n in faster if n is not None]
    if not known or share is None:
        return None
    return max(1, max(min(known), share) - compared.attainment.pairs)


def _needed(effect: Paired, smallest: float, alpha: float) -> int | None:
    return None if effect.sd is None else pairs_needed(smallest, effect.sd, alpha=alpha)
