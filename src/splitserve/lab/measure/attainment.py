"""The share of requests that met the SLO, of all that were the server's to answer."""

from collections.abc import Iterable
from dataclasses import dataclass

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import end_to_end_user, token_events, ttft_user
from splitserve.lab.measure.outcomes import counted, standing
from splitserve.lab.measure.tail import TailRule, fluidity, tail_itl


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits in seconds, met when equal; None is no limit.

    ``itl_s`` is on the tail of each request's gaps by ``rule``. With ``fluid_share`` it is the time
    allowed per token instead, and that share of tokens must keep it. An answer without a gap has
    nothing that could miss ``itl_s``.
    """

    ttft_s: float | None = None
    itl_s: float | None = None
    end_to_end_s: float | None = None
    rule: TailRule = TailRule.MAX
    fluid_share: float | None = None


def is_good(record: RequestRecord, slo: Slo) -> bool:
    """Whether this request met ``slo``. No other request's values matter."""
    if not standing(record).may_be_good or not token_events(record):
        return False
    if slo.ttft_s is not None and ttft_user(record) > slo.ttft_s:
        return False
    if slo.end_to_end_s is not None and end_to_end_user(record) > slo.end_to_end_s:
        return False
    return slo.itl_s is None or _is_smooth(record, slo, slo.itl_s)


def attainment(records: Iterable[RequestRecord], slo: Slo) -> float | None:
    """Good requests over all that were the server's to answer; None for none."""
    asked = counted(records)
    return sum(is_good(record, slo) for record in asked) / len(asked) if asked else None


def goodput(records: Iterable[RequestRecord], slo: Slo, window_s: float) -> float:
    """Good requests per second of the window in which they were due."""
    return sum(is_good(record, slo) for record in counted(records)) / window_s


def _is_smooth(record: RequestRecord, slo: Slo, itl_s: float) -> bool:
    if slo.fluid_share is not None:
        first_s = slo.ttft_s if slo.ttft_s is not None else ttft_user(record)
        share = fluidity(token_events(record), record.intended_s, first_s, itl_s)
        return share >= slo.fluid_share
    tail = tail_itl(record, slo.rule)
    return tail is None or tail <= itl_s
