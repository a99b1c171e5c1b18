"""What has to hold before the first request: the client is exact, and it keeps up."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.errors import UnavailableError
from splitserve.lab.mock.capacity import Capacity, CapacityLoad, measure_capacity, measure_spread
from splitserve.lab.mock.conformance import CaseResult, all_cases, report_of, run_conformance
from splitserve.lab.plan.phases import Run
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.validity import lag_limit_s

_HEADROOM: Final = 2.0
_REQUESTS: Final = 40
_SHORTEST_S, _LONGEST_S = 3.0, 10.0
_TOKENS: Final = 64
_GAP_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class PreflightNote:
    """What was found, for the report: the self-test's lines, and the client's figures at twice the
    load of the study, None where the study has no rate."""

    passed: bool
    self_test: str
    capacity: Capacity | None = None

    @property
    def processes(self) -> int:
        """From how many the load of open loops is sent."""
        return 1 if self.capacity is None else self.capacity.processes


Preflight = Callable[[Plan, Sequence[Run]], Awaitable[PreflightNote]]


async def full_preflight(plan: Plan, runs: Sequence[Run]) -> PreflightNote:
    """Raises UnavailableError for a client that is not exact here, or too slow."""
    results = await run_conformance(all_cases())
    _check_exact(results)
    found = await _capacity(plan, runs)
    if found is not None:
        _check_capacity(found, lag_limit_s(plan.study))
    return PreflightNote(True, report_of(results), found)


def peak_per_s(runs: Sequence[Run]) -> float:
    """The greatest rate planned; 0 for none."""
    return max((run.cell.rate_per_s or 0.0 for run in runs), default=0.0)


async def _capacity(plan: Plan, runs: Sequence[Run]) -> Capacity | None:
    rate = _HEADROOM * peak_per_s(runs)
    if rate == 0:
        return None
    corpus, target = plan.study.workload.corpus, plan.study.target
    load = CapacityLoad(
        rate=rate,
        duration_s=min(_LONGEST_S, max(_SHORTEST_S, _REQUESTS / rate)),
        prompt_tokens=corpus.prompt_tokens.get(target.prompt, 1024),
        max_tokens=min(_TOKENS, corpus.output_tokens.get(target.output, _TOKENS)),
        gap_s=_GAP_S,
    )
    return await enough_processes(load, lag_limit_s(plan.study), len(os.sched_getaffinity(0)))


async def enough_processes(load: CapacityLoad, limit_s: float, cores: int) -> Capacity:
    """Of the fewest processes that keep up, else of as many as there are cores."""
    found, processes = await measure_capacity(load), 1
    while not found.within(limit_s) and processes < cores:
        processes = min(cores, 2 * processes)
        found = await measure_spread(load, processes)
    return found


def _check_exact(results: Sequence[CaseResult]) -> None:
    failed = [result for result in results if not result.passed]
    if failed:
        first = failed[0]
        what = first.faults[0] if first.faults else f"it was {1000 * first.worst_s:.2f} ms off"
        raise UnavailableError(
            f"the load client's self-test failed in {len(failed)} of {len(results)} cases, first "
            f"in {first.name!r}: {what}; is this machine busy with something else?"
        )


def _check_capacity(found: Capacity, limit_s: float) -> None:
    if not found.within(limit_s):
        raise UnavailableError(
            f"the load client does not keep up with twice the load of this study: {found.failed} "
            f"of {found.requests} requests failed, p99 lag {1000 * found.lag_p99_s:.1f} ms of "
            f"{1000 * limit_s:.1f} ms allowed, {100 * found.cpu:.0f} % of a core, "
            f"from {found.processes} processes"
        )
