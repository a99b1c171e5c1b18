"""The guide's advice, answered from the measurements: one row per symptom."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from splitserve.lab.report import estimates
from splitserve.lab.report.figure import NOT_MEASURED, Figure
from splitserve.lab.report.results import StudyResults
from splitserve.lab.stats.paired import ratios
from splitserve.lab.stats.shares import pooled
from splitserve.lab.verdict.evidence import Evidence, Pair
from splitserve.lab.verdict.outcome import Verdict

Found = tuple[tuple[str, ...], bool | None, str]
"""What was measured, whether the symptom is there, and what that says here."""

MS: Final = 1000.0

HOW: Final = {
    "target": "To measure it: let the pairs at the target cell end (splitserve lab resume).",
    "hard": "To measure it: give the plan an axis concurrency, with its longest prompts as the "
    "target.",
    "turns": "To measure it: take a corpus of chats with several turns, on servers that tell the "
    "cached tokens of each answer.",
    "front end": "To measure it: have the CPU of the front end recorded, or profile it under the "
    "target's load.",
    "handoffs": "To measure it: take a split whose gateway counts its hand-offs on /metrics, as "
    "Splitserve's does.",
}
"""What would answer a row that nothing was measured for."""


@dataclass(frozen=True, slots=True)
class Advice:
    """``measured``: one sentence each. ``present`` is None where the symptom was not looked for,
    and then ``here`` says what would tell."""

    symptom: str
    guide: str
    measured: tuple[str, ...]
    present: bool | None
    here: str


def advise(results: StudyResults) -> tuple[Advice, ...]:
    """All rows, in the order of the guide."""
    return tuple(
        Advice(symptom, guide, *find(results.evidence, results.verdict))
        for symptom, guide, find in _ROWS
    )


def _tail_misses(evidence: Evidence, _: Verdict) -> Found:
    limit = evidence.rules.slo.tail_itl_s
    single, split = _times(evidence.target, lambda run: run.tail_itl_s)
    misses, kept = _above(single, limit), _above(split, limit)
    if misses is None:
        return (NOT_MEASURED,), None, HOW["target"]
    good, wanted = _attained(evidence), evidence.rules.slo.attainment
    told = (
        f"tail ITL, single: {single.brief}",
        f"split: {split.brief}",
        _limit(limit),
        f"requests of single within the SLO: {100 * good:.3g} %, wanted {100 * wanted:.3g} %",
    )
    # A quantile may keep a limit that more requests miss than may.
    late = _above(_times(evidence.target, lambda run: run.ttft_s)[0], evidence.rules.slo.ttft_s)
    misses = misses or (good < wanted and not late)
    if not misses:
        return told, False, "The single configuration keeps it: no reason to split for this."
    ends = "keeps it: split, if the verdict's clauses hold." if kept is False else "misses it too."
    return told, True, f"Single misses its limit and the split {ends}"


def _attained(evidence: Evidence) -> float:
    """By the single arm at the target, of all requests."""
    return pooled([pair.a.attained for pair in evidence.target]).share


def _long_prompts(evidence: Evidence, verdict: Verdict) -> Found:
    if not evidence.hard:
        return (NOT_MEASURED,), None, HOW["hard"]
    paired = ratios(
        [pair.a.tail_itl_s for pair in evidence.hard], [pair.b.tail_itl_s for pair in evidence.hard]
    )
    level = 1 - evidence.rules.alpha
    told = (f"tail ITL, split over single: {estimates.effect(paired, level).brief}",)
    if paired.ratio_interval(level).high >= 1:
        return told, False, "No gain is shown there: stay with the single configuration."
    slow = _triggered(verdict, "R8")
    if slow is None:
        return told, True, f"The split helps there; KV transfer was not measured. {HOW['handoffs']}"
    fast = "and KV transfer is fast enough: split."
    return told, True, f"The split helps there, {'but KV transfer is slow.' if slow else fast}"


def _growing_chats(evidence: Evidence, verdict: Verdict) -> Found:
    told = _share("earlier turns computed anew by prefill", evidence.signals.recomputed_share)
    says = {
        None: HOW["turns"],
        False: "Earlier turns are found in a cache: bidirectional transfer would gain little.",
        True: "If you split, then with bidirectional transfer: measure it as the sole change.",
    }
    return _by_reading(verdict, "R10", (told,), says)


def _frontend(evidence: Evidence, verdict: Verdict) -> Found:
    signals = evidence.signals
    told = (
        _share("front end's CPU in use", signals.frontend_cpu),
        _share("text work's part of TTFT", signals.frontend_share),
    )
    says = {
        None: HOW["front end"],
        False: "Text work is not the limit: leave the render tier where it is.",
        True: "Split off the render tier first.",
    }
    return _by_reading(verdict, "R11", told, says)


def _ttft_binds(evidence: Evidence, verdict: Verdict) -> Found:
    if not evidence.target:
        return (NOT_MEASURED,), None, HOW["target"]
    single, split = _times(evidence.target, lambda run: run.ttft_s)
    says = {
        None: HOW["target"],
        False: "TTFT is not what binds here, or it does not get worse.",
        True: "Stay colocated, or measure more pairs.",
    }
    limit = _limit(evidence.rules.slo.ttft_s)
    told = (f"TTFT, single: {single.brief}", f"split: {split.brief}", limit)
    return _by_reading(verdict, "R7", told, says)


def _slow_transfer(evidence: Evidence, verdict: Verdict) -> Found:
    handoffs, budget_s = evidence.handoffs, evidence.rules.margins.handoff_p95_s
    if handoffs is None:
        return (NOT_MEASURED,), None, HOW["handoffs"]
    p95 = estimates.typical_run(handoffs.p95_s, "ms", MS)
    told = (
        f"KV hand-off, p95: {p95.brief}",
        f"budget {MS * budget_s:g} ms",
        _share("part of TTFT", handoffs.share_of_ttft),
    )
    says = {
        None: HOW["handoffs"],
        False: "The transfer is within its budget.",
        True: "Fix the transfer, or stay colocated.",
    }
    return _by_reading(verdict, "R8", told, says)


def _light_traffic(evidence: Evidence, verdict: Verdict) -> Found:
    if not evidence.target:
        return (NOT_MEASURED,), None, HOW["target"]
    slo = evidence.rules.slo
    ttft, _ = _times(evidence.target, lambda run: run.ttft_s)
    tail, _ = _times(evidence.target, lambda run: run.tail_itl_s)
    told = (
        f"single, TTFT: {ttft.brief}; {_limit(slo.ttft_s)}",
        f"single, tail ITL: {tail.brief}; {_limit(slo.tail_itl_s)}",
    )
    says = {
        None: HOW["target"],
        False: "The load uses more than half of a limit: this is no reason to stay.",
        True: "The single configuration has half of each limit to spare: stay colocated.",
    }
    return _by_reading(verdict, "R9", told, says)


_ROWS: Final[tuple[tuple[str, str, Callable[[Evidence, Verdict], Found]], ...]] = (
    ("ITL p99 misses its target under load", "split", _tail_misses),
    (
        "long prompts at high concurrency",
        "split, if KV transfer is fast",
        _long_prompts,
    ),
    (
        "chat or agent loops with growing context",
        "split, with bidirectional transfer",
        _growing_chats,
    ),
    (
        "profile shows tokenising/parsing load on the CPU",
        "split off the render tier",
        _frontend,
    ),
    (
        "TTFT is the binding constraint",
        "stay colocated, or measure first",
        _ttft_binds,
    ),
    ("KV transfer is slow", "fix the transfer, or stay colocated", _slow_transfer),
    ("low, bursty or latency-tolerant traffic", "stay colocated", _light_traffic),
)


def _times(pairs: tuple[Pair, ...], figure: Callable[..., float]) -> tuple[Figure, Figure]:
    a, b = [figure(pair.a) for pair in pairs], [figure(pair.b) for pair in pairs]
    return estimates.typical_run(a, "ms", MS), estimates.typical_run(b, "ms", MS)


def _above(figure: Figure, limit_s: float) -> bool | None:
    return None if figure.value is None else figure.value > MS * limit_s


def _by_reading(
    verdict: Verdict, name: str, told: tuple[str, ...], says: Mapping[bool | None, str]
) -> Found:
    """The symptom is there when the verdict's reading ``name`` was triggered."""
    present = _triggered(verdict, name)
    return told, present, says[present]


def _triggered(verdict: Verdict, name: str) -> bool | None:
    return next((heard.triggered for heard in verdict.readings if heard.name == name), None)


def _share(name: str, value: float | None) -> str:
    return f"{name}: {NOT_MEASURED if value is None else f'{100 * value:.3g} %'}"


def _limit(seconds: float) -> str:
    return f"limit {MS * seconds:g} ms"
