"""From the records of runs to samples: which runs, which requests, which values."""

import math
from collections.abc import Callable, Iterable, Sequence

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.attainment import Slo, is_good
from splitserve.lab.measure.latency import first_gap, gaps, ttft_service, ttft_user
from splitserve.lab.measure.outcomes import counted, measured, standing
from splitserve.lab.measure.tail import tail_itl
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.run.journal import State
from splitserve.lab.stats.paired import Paired, ratios
from splitserve.lab.stats.quantile import inverse_cdf
from splitserve.lab.stats.shares import Count

Series = tuple[str, str]
"""Phase and name."""

Sampler = Callable[[Sequence[RequestRecord]], list[float]]


def accepted(results: StudyResults) -> list[RunResult]:
    """Runs that count, in the order of the plan."""
    found = [one for one in results.runs if one.state is State.ACCEPTED]
    return sorted(found, key=lambda one: one.run.number)


def of_series(results: StudyResults, series: Series, side: str) -> list[RunResult]:
    """Accepted runs of one side of a series."""
    return [r for r in accepted(results) if series_of(r) == series and r.run.side == side]


def series_of(result: RunResult) -> Series:
    """The series of a run."""
    return result.run.phase, result.run.series


def pairs_of(results: StudyResults, series: Series) -> list[tuple[RunResult, RunResult]]:
    """Pairs (A, B) of which both runs were accepted."""
    first = {one.run.pair: one for one in of_series(results, series, "A")}
    second = {one.run.pair: one for one in of_series(results, series, "B")}
    both = [key for key in first if key is not None and key in second]
    return [(first[key], second[key]) for key in both]


def asked(run: RunResult) -> list[RequestRecord]:
    """Requests of the window that were the server's to answer, in the order they were due."""
    return sorted(counted(measured(run.records)), key=lambda r: (r.intended_s, r.request_id))


def same_requests(a: RunResult, b: RunResult) -> list[tuple[RequestRecord, RequestRecord]]:
    """Each request that both runs of a pair have, in the order of ``a``. One of them may lack some:
    its warm-up was longer, or its client never sent them."""
    others = {record.request_id: record for record in asked(b)}
    return [(one, others[one.request_id]) for one in asked(a) if one.request_id in others]


def ttft(records: Iterable[RequestRecord]) -> list[float]:
    """Seconds from due to first token."""
    return [ttft_user(record) for record in records]


def ttft_sent(records: Iterable[RequestRecord]) -> list[float]:
    """Seconds from sent to first token."""
    return [ttft_service(record) for record in records]


def first_gaps(records: Iterable[RequestRecord]) -> list[float]:
    """Seconds from first to second event, of requests that have two."""
    return [gap for record in records if (gap := first_gap(record)) is not None]


def pooled_gaps(records: Iterable[RequestRecord]) -> list[float]:
    """Gaps of all requests, in seconds; one infinite gap for each that failed."""
    found: list[float] = []
    for record in records:
        found += [math.inf] if standing(record).failed else gaps(record) or []
    return found


def tails(slo: Slo) -> Sampler:
    """The tail of each request's gaps by the rule of ``slo``, in seconds."""

    def sampled(records: Sequence[RequestRecord]) -> list[float]:
        return [tail for one in records if (tail := tail_itl(one, slo.rule)) is not None]

    return sampled


def errors(records: Sequence[RequestRecord]) -> Count | None:
    """Failed of all; None without a request."""
    if not records:
        return None
    return Count(sum(standing(record).failed for record in records), len(records))


def attained(records: Sequence[RequestRecord], slo: Slo) -> Count | None:
    """Good of all; None without a request."""
    if not records:
        return None
    return Count(sum(is_good(record, slo) for record in records), len(records))


def paired_effect(
    results: StudyResults, series: Series, sampler: Sampler, p: float
) -> Paired | None:
    """Ratios B/A of the runs' quantile ``p``; None without a pair in which both have it."""
    first, second = [], []
    for a, b in pairs_of(results, series):
        of_a, of_b = sampler(asked(a)), sampler(asked(b))
        if of_a and of_b:
            first.append(inverse_cdf(of_a, p))
            second.append(inverse_cdf(of_b, p))
    if not first or min(*first, *second) <= 0:
        return None
    return ratios(first, second)
