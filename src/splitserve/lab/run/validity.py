"""Whether a run may count: rules about the client and the machine, never about the result.

A server that fails requests has given a result. A client that was late, or a server that was
started anew in the middle, has not.
"""

from collections.abc import Sequence
from typing import Final

from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.measure.outcomes import counted, measured
from splitserve.lab.plan.study import Study
from splitserve.lab.run.warmup import unsettled
from splitserve.lab.stats.quantile import inverse_cdf

NEVER_SENT: Final = 0.001
LAG_QUANTILE: Final = 0.99
LAG_S: Final = 0.001
LAG_SHARE: Final = 0.01
"""Of the TTFT target: what a client may be late by."""


def lag_limit_s(study: Study) -> float:
    """The lag that nobody could take for the server's."""
    return max(LAG_S, LAG_SHARE * study.slo.ttft_ms / 1000)


def why_void(
    records: Sequence[RequestRecord],
    study: Study,
    changed: Sequence[str],
    not_alive: str | None,
) -> str | None:
    """The first rule that the run breaks, in words; None for a run that counts.

    ``changed``: names of the environment that are not as before the run; ``not_alive``: what of
    the arm or the client ended in it.
    """
    asked = measured(records)
    lags = [record.lag_s for record in asked if record.lag_s is not None]
    never = sum(record.outcome is Outcome.NEVER_SENT for record in asked)
    late_s = inverse_cdf(lags, LAG_QUANTILE) if lags else 0.0
    limit_s = lag_limit_s(study)
    rules = (
        (not_alive is not None, not_alive or ""),
        (bool(changed), f"the environment changed: {', '.join(changed)}"),
        (not asked, "nothing was measured"),
        (
            never > NEVER_SENT * len(asked),
            f"the client was too late to send {never} of {len(asked)} requests",
        ),
        (
            late_s > limit_s,
            f"the client was late: p99 {1000 * late_s:.1f} ms, allowed {1000 * limit_s:.1f} ms",
        ),
        (bool(asked) and _unreached(asked), "no request reached the server"),
        (
            unsettled(records, study.metrics),
            "warm-up was not over in half of the window: TTFT was still falling; set "
            "metrics.warmup_min_s higher",
        ),
    )
    return next((reason for broken, reason in rules if broken), None)


def _unreached(asked: Sequence[RequestRecord]) -> bool:
    return all(record.outcome is Outcome.CONNECT_ERROR for record in counted(asked))
