"""The lab measured: how often its verdicts are wrong, and how exact and how fast its client is.

The inference is rehearsed on simulated studies, of which the truth is known. What it should find is
``EFFECT``; at the smallest effect of interest itself a verdict to adopt has even chances, since the
rule asks for an estimate that reaches it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from splitserve.lab.mock.capacity import CPU_LIMIT, CapacityLoad, measure_capacity
from splitserve.lab.mock.conformance import TOLERANCE_S, all_cases, run_conformance
from splitserve.lab.stats.simulate import StudyModel
from splitserve.lab.verdict.outcome import Outcome
from splitserve.lab.verdict.rehearsal import CONFIDENCE, Rehearsal, rehearse

EFFECT: Final = 0.7
"""Tail ITL with the split over that without."""

SMALLEST: Final = 0.8
"""The plan's smallest effect of interest, unless it names another."""

SAME: Final = StudyModel()
NOISY: Final = StudyModel(run_sd=0.4, correlation=0.0)
BETTER: Final = StudyModel(tail_itl_ratio=EFFECT)
JUST_BETTER: Final = StudyModel(tail_itl_ratio=SMALLEST)

WRONG: Final = 0.05
POWER: Final = 0.8
OFF: Final = 0.02
"""What coverage may differ from the nominal."""

LAG_S: Final = 0.020
BUSY: Final = CapacityLoad(rate=50, duration_s=20, prompt_tokens=256, max_tokens=50, gap_s=0.1)
"""Answers of five seconds: 250 of them under way."""


@dataclass(frozen=True, slots=True)
class Reading:
    """``limit`` in words, empty where the reading has none and ``met`` says nothing."""

    what: str
    found: float
    limit: str
    met: bool


def error_rates(studies: int, seed: int) -> Iterator[Reading]:
    """Shares of ``studies`` simulated studies of each kind; the same from the same seed.

    A thousand take about twenty seconds of one core in all.
    """
    same = rehearse(SAME, studies, seed)
    yield at_most("equal arms: adopted", same.share(Outcome.ADOPT), WRONG)
    yield at_most("equal arms: a latency found better", same.rejected / studies, WRONG)
    yield from _coverage("equal arms", same)
    noisy = rehearse(NOISY, studies, seed)
    yield at_most("equal arms, noisy runs: adopted", noisy.share(Outcome.ADOPT), WRONG)
    yield at_most("equal arms, noisy runs: found better", noisy.rejected / studies, WRONG)
    better = rehearse(BETTER, studies, seed)
    yield at_least(f"tail ITL times {EFFECT}: adopted", better.share(Outcome.ADOPT), POWER)
    yield from _coverage(f"tail ITL times {EFFECT}", better)
    just = rehearse(JUST_BETTER, studies, seed)
    yield at_least(f"tail ITL times {SMALLEST}: found better", just.rejected / studies, POWER)
    adopted = just.share(Outcome.ADOPT)
    yield Reading(f"tail ITL times {SMALLEST}: adopted", adopted, "", True)


async def client_readings() -> list[Reading]:
    """The load client against scripted servers, here and now. Half a minute."""
    results = await run_conformance(all_cases())
    wrong = sum(not result.exact for result in results)
    worst = max(abs(result.worst_s) for result in results)
    found = await measure_capacity(BUSY)
    return [
        at_most(f"client: of {len(results)} streams read wrongly", wrong, 0),
        at_most("client: largest time error, s", worst, TOLERANCE_S),
        at_most(f"client: of {found.requests} at {BUSY.rate:.0f}/s failed", found.failed, 0),
        at_most("client: p99 lag there, s", found.lag_p99_s, LAG_S),
        at_most("client: share of a core there", found.cpu, CPU_LIMIT),
    ]


def at_most(what: str, found: float, limit: float) -> Reading:
    return Reading(what, found, f"at most {limit:g}", found <= limit)


def at_least(what: str, found: float, limit: float) -> Reading:
    return Reading(what, found, f"at least {limit:g}", found >= limit)


def near(what: str, found: float, nominal: float, off: float) -> Reading:
    # Shares have no more than a few decimals; what binary adds must not decide.
    met = round(abs(found - nominal), 9) <= off
    return Reading(what, found, f"{nominal:g} +- {off:g}", met)


def _coverage(arms: str, rehearsal: Rehearsal) -> Iterator[Reading]:
    for name in rehearsal.covered:
        share = rehearsal.coverage(name)
        yield near(f"{arms}: {name} interval holds the truth", share, CONFIDENCE, OFF)
