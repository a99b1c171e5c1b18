"""What one load run comes to: TTFT, ITL and failures, each on its own."""

from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.bench.load import error_of, gaps_of, tokens_of
from splitserve.bench.quantile import quantile
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import ttft_user


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds. Failed requests have no times; they are counted in ``errors``, never left out."""

    requests: int
    errors: int
    first_error: str
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    first_gap_p50: float
    worst_gap: float
    tokens: int


def summarise(records: Sequence[RequestRecord]) -> Summary:
    whole = [record for record in records if not error_of(record)]
    errors = [error for record in records if (error := error_of(record))]
    ttfts = [ttft_user(record) for record in whole]
    gaps = [gap for record in whole for gap in gaps_of(record)]
    first_gaps = [found[0] for record in whole if (found := gaps_of(record))]
    return Summary(
        requests=len(records),
        errors=len(errors),
        first_error=errors[0] if errors else "",
        ttft_p50=quantile(ttfts, 0.5),
        ttft_p99=quantile(ttfts, 0.99),
        itl_p50=quantile(gaps, 0.5),
        itl_p99=quantile(gaps, 0.99),
        first_gap_p50=quantile(first_gaps, 0.5),
        worst_gap=max(gaps, default=float("nan")),
        tokens=sum(map(tokens_of, whole)),
    )
