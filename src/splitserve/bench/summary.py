"""What one load run comes to: TTFT, ITL and failures, each on its own (brief B1)."""

from collections.abc import Sequence
from dataclasses import dataclass

from splitserve.bench.load import Sample
from splitserve.bench.quantile import quantile


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


def summarise(samples: Sequence[Sample]) -> Summary:
    whole = [sample for sample in samples if not sample.error and sample.tokens]
    failed = [sample for sample in samples if sample.error or not sample.tokens]
    ttfts = [sample.ttft for sample in whole]
    gaps = [gap for sample in whole for gap in sample.gaps]
    first_gaps = [sample.gaps[0] for sample in whole if sample.gaps]
    return Summary(
        requests=len(samples),
        errors=len(failed),
        first_error=(failed[0].error or "no token came") if failed else "",
        ttft_p50=quantile(ttfts, 0.5),
        ttft_p99=quantile(ttfts, 0.99),
        itl_p50=quantile(gaps, 0.5),
        itl_p99=quantile(gaps, 0.99),
        first_gap_p50=quantile(first_gaps, 0.5),
        worst_gap=max(gaps, default=float("nan")),
        tokens=sum(len(sample.tokens) for sample in whole),
    )
