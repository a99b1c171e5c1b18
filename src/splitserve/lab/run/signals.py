"""Observations beside the figures, from the records and metrics of the target pairs."""

from collections.abc import Iterable, Sequence

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import tokens_per_event
from splitserve.lab.measure.outcomes import measured, standing
from splitserve.lab.run.accepted import DonePair, DoneRun
from splitserve.lab.stats.interval import mean
from splitserve.lab.stats.shares import Count, pooled
from splitserve.lab.verdict.evidence import Handoffs, Signals


def signals_of(pairs: Sequence[DonePair], temperature: float) -> Signals:
    """What was seen in ``pairs``; all else stands as not measured. Answers are compared where the
    plan's ``temperature`` is 0: others differ by chance."""
    a, b = [pair.a for pair in pairs], [pair.b for pair in pairs]
    known = [run.handoffs for run in b if run.handoffs is not None]
    return Signals(
        cached_a=_cached(a),
        cached_b=_cached(b),
        tokens_per_event_a=_tokens_per_event(a),
        tokens_per_event_b=_tokens_per_event(b),
        decode_preemptions=sum(one.preemptions for one in known) if known else None,
        outputs_differ=_differing(pairs) if temperature == 0 else None,
    )


def handoffs_of(
    pairs: Sequence[DonePair], block_tokens: int, *, own_engine: bool
) -> Handoffs | None:
    """Of the split's runs; None unless each of them has told its own.

    What decode computed of a prompt itself is, with an engine of ours, all of it where it was
    placed whole and nothing otherwise: the mean over requests. vLLM may recompute in silence, so
    that with it nothing is known.
    """
    runs = [pair.b for pair in pairs]
    known = [run.handoffs for run in runs if run.handoffs is not None]
    if not known or len(known) < len(runs):
        return None
    whole = pooled([one.whole for one in known]).share
    lengths = [r.prompt_tokens for r in _served(runs) if r.prompt_tokens is not None]
    return Handoffs(
        p95_s=tuple(one.p95_s for one in known),
        failed=tuple(one.failed for one in known),
        local_tokens=whole * mean(lengths) if lengths and own_engine else None,
        block_tokens=block_tokens,
    )


def same_answers(one: Sequence[RequestRecord], other: Sequence[RequestRecord]) -> Count | None:
    """How many answers differ of those that both served; None where both served none."""
    first = {r.request_id: r.digest for r in measured(one) if standing(r).served}
    second = {r.request_id: r.digest for r in measured(other) if standing(r).served}
    both = first.keys() & second.keys()
    if not both:
        return None
    return Count(sum(first[name] != second[name] for name in both), len(both))


def _differing(pairs: Sequence[DonePair]) -> Count | None:
    counts = [same_answers(pair.a.records, pair.b.records) for pair in pairs]
    known = [count for count in counts if count is not None]
    return pooled(known) if known else None


def _cached(runs: Sequence[DoneRun]) -> float | None:
    told = [r for r in _served(runs) if r.cached_tokens is not None and r.prompt_tokens]
    prompt = sum(r.prompt_tokens or 0 for r in told)
    return sum(r.cached_tokens or 0 for r in told) / prompt if prompt else None


def _tokens_per_event(runs: Sequence[DoneRun]) -> float | None:
    found = [mean_tokens for r in _served(runs) if (mean_tokens := tokens_per_event(r)) is not None]
    return mean(found) if found else None


def _served(runs: Sequence[DoneRun]) -> Iterable[RequestRecord]:
    return [r for run in runs for r in measured(run.records) if standing(r).served]
