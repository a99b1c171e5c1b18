"""The guide's advice, answered from the measurements: one row per symptom."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from splitserve.lab.report import estimates
from splitserve.lab.report.figure import NOT_MEASURED, Figure
from splitserve.lab.report.results import StudyResults
from splitserve.lab.stats.paired import ratios
from splitserve.lab.verdict.evidence import Evidence, Pair
from splitserve.lab.verdict.outcome import Verdict

Found = tuple[str, bool | None, str]
"""What was measured, whether the symptom is there, and what that says here."""

MS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Advice:
    """``present`` is None where the symptom was not looked for."""

    symptom: str
    guide: str
    measured: str
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
    misses = _above(single, limit)
    told = f"single {single}; limit {MS * limit:g} ms"
    if misses is None:
        return told, None, "Measure the target cell."
    if not misses:
        return told, False, "The single configuration keeps it: no reason to split for this."
    kept = _above(split, limit)
    ends = "keeps it: split, if the verdict's clauses hold." if kept is False else "misses it too."
    return f"{told}; split {split}", True, f"Single misses its limit and the split {ends}"


def _long_prompts(evidence: Evidence, verdict: Verdict) -> Found:
    if not evidence.hard:
        return NOT_MEASURED, None, "Run long prompts at the highest concurrency."
    paired = ratios(
        [pair.a.tail_itl_s for pair in evidence.hard], [pair.b.tail_itl_s for pair in evidence.hard]
    )
    interval = paired.ratio_interval(1 - evidence.rules.alpha)
    told = f"tail ITL, split over single: {estimates.effect(paired, 1 - evidence.rules.alpha)}"
    if interval.high >= 1:
        return told, False, "No gain is shown there: stay with the single configuration."
    slow = _triggered(verdict, "R8")
    if slow is None:
        return told, True, "The split helps there; KV transfer was not measured, so look at it."
    fast = "and KV transfer is fast enough: split."
    return told, True, f"The split helps there, {'but KV transfer is slow.' if slow else fast}"


def _growing_chats(evidence: Evidence, verdict: Verdict) -> Found:
    recomputed = evidence.signals.recomputed_share
    told = _share("earlier turns computed anew by prefill", recomputed)
    says = {
        None: "Send sessions with several turns to learn it.",
        False: "Earlier turns are found in a cache: bidirectional transfer would gain little.",
        True: "If you split, then with bidirectional transfer: measure it as the sole change.",
    }
    present = _triggered(verdict, "R10")
    return told, present, says[present]


def _frontend(evidence: Evidence, verdict: Verdict) -> Found:
    signals = evidence.signals
    told = "; ".join(
        (
            _share("front end's CPU", signals.frontend_cpu),
            _share("text work in TTFT", signals.frontend_share),
        )
    )
    says = {
        None: "Profile the front end to learn it.",
        False: "Text work is not the limit: leave the render tier where it is.",
        True: "Split off the render tier first.",
    }
    present = _triggered(verdict, "R11")
    return told, present, says[present]


def _ttft_binds(evidence: Evidence, verdict: Verdict) -> Found:
    limit = evidence.rules.slo.ttft_s
    single, split = _times(evidence.target, lambda run: run.ttft_s)
    says = {
        None: "Measure the target cell.",
        False: "TTFT is not what binds here, or it does not get worse.",
        True: "Stay colocated, or measure more pairs.",
    }
    present = _triggered(verdict, "R7")
    return f"single {single}; split {split}; limit {MS * limit:g} ms", present, says[present]


def _slow_transfer(evidence: Evidence, verdict: Verdict) -> Found:
    handoffs, budget = evidence.handoffs, MS * evidence.rules.margins.handoff_p95_s
    p95 = estimates.typical_run(handoffs.p95_s if handoffs else (), "ms", MS)
    share = _share("part of TTFT", handoffs.share_of_ttft if handoffs else None)
    says = {
        None: "Hand-offs were not observed: take their times from the server.",
        False: "The transfer is within its budget.",
        True: "Fix the transfer, or stay colocated.",
    }
    present = _triggered(verdict, "R8")
    return f"hand-off p95 {p95}; budget {budget:g} ms; {share}", present, says[present]


def _light_traffic(evidence: Evidence, verdict: Verdict) -> Found:
    slo = evidence.rules.slo
    ttft, _ = _times(evidence.target, lambda run: run.ttft_s)
    tail, _ = _times(evidence.target, lambda run: run.tail_itl_s)
    told = (
        f"single: TTFT {ttft} of {MS * slo.ttft_s:g} ms; "
        f"tail ITL {tail} of {MS * slo.tail_itl_s:g} ms"
    )
    says = {
        None: "Measure the target cell.",
        False: "The load uses more than half of a limit: this is no reason to stay.",
        True: "The single configuration has half of each limit to spare: stay colocated.",
    }
    present = _triggered(verdict, "R9")
    return told, present, says[present]


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


def _triggered(verdict: Verdict, name: str) -> bool | None:
    return next((heard.triggered for heard in verdict.readings if heard.name == name), None)


def _share(name: str, value: float | None) -> str:
    return f"{name} {NOT_MEASURED if value is None else f'{100 * value:.3g} %'}"
