"""Observations beside the figures, from the records and metrics of the target pairs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.outcomes import measured, standing
from splitserve.lab.run.accepted import DonePair, DoneRun
from splitserve.lab.run.events import mean_size
from splitserve.lab.stats.interval import mean
from splitserve.lab.stats.shares import Count, pooled
from splitserve.lab.verdict.evidence import Handoffs, Signals


@dataclass(frozen=True, slots=True)
class Answers:
    """Counts of greedy answers that differ, None where none were compared."""

    alone: Count | None = None
    under_load: Count | None = None
    control: Count | None = None


def signals_of(pairs: Sequence[DonePair], answers: Answers) -> Signals:
    """What was seen in ``pairs``; all else stands as not measured."""
    a, b = [pair.a for pair in pairs], [pair.b for pair in pairs]
    known = [run.handoffs for run in b if run.handoffs is not None]
    return Signals(
        cached_a=_cached(a),
        cached_b=_cached(b),
        tokens_per_event_a=mean_size(record for run in a for record in run.records),
        tokens_per_event_b=mean_size(record for run in b for record in run.records),
        decode_preemptions=sum(one.preemptions for one in known) if known else None,
        outputs_differ=answers.alone,
        outputs_differ_under_load=answers.under_load,
        outputs_differ_control=answers.control,
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
    shares = [one.share_of_ttft for one in known if one.share_of_ttft is not None]
    return Handoffs(
        p95_s=tuple(one.p95_s for one in known),
        failed=tuple(one.failed for one in known),
        share_of_ttft=mean(shares) if shares else None,
        local_tokens=whole * mean(lengths) if lengths and own_engine else None,
        block_tokens=block_tokens,
    )


def answers_of(
    target: Sequence[DonePair],
    control: Sequence[DonePair],
    alone: tuple[DoneRun, DoneRun] | None,
) -> Answers:
    """How many greedy answers differ: between the arms under load, between two runs of the single
    arm, and between one run of each arm that got its requests one at a time."""
    return Answers(
        alone=None if alone is None else same_answers(alone[0].records, alone[1].records),
        under_load=differing(target),
        control=differing(control),
    )


def same_answers(one: Sequence[RequestRecord], other: Sequence[RequestRecord]) -> Count | None:
    """How many answers differ of those that both served; None where both served none."""
    # Later turns answer what the earlier answers made of the history.
    first, second = (
        {r.request_id: r.digest for r in measured(run) if standing(r).served and r.turn == 0}
        for run in (one, other)
    )
    both = first.keys() & second.keys()
    if not both:
        return None
    return Count(sum(first[name] != second[name] for name in both), len(both))


def differing(pairs: Sequence[DonePair]) -> Count | None:
    """Answers that are not the same in both runs of their pair; None where none were compared."""
    counts = [same_answers(pair.a.records, pair.b.records) for pair in pairs]
    known = [count for count in counts if count is not None]
    return pooled(known) if known else None


def _cached(runs: Sequence[DoneRun]) -> float | None:
    told = [r for r in _served(runs) if r.cached_tokens is not None and r.prompt_tokens]
    prompt = sum(r.prompt_tokens or 0 for r in told)
    return sum(r.cached_tokens or 0 for r in told) / prompt if prompt else None


def _served(runs: Sequence[DoneRun]) -> Iterable[RequestRecord]:
    return [r for run in runs for r in measured(run.records) if standing(r).served]
