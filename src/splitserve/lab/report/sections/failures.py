"""Whether failures are told honestly, and whether one can go back."""

from collections import Counter
from collections.abc import Sequence

from splitserve.lab.measure.outcomes import standing
from splitserve.lab.report import estimates, samples
from splitserve.lab.report.blocks import Block, Section, Table, Text
from splitserve.lab.report.figure import Figure
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.arms import at_target
from splitserve.lab.verdict.rollback import RollbackProof, unmet

MOST = 20


def faults(results: StudyResults) -> Section:
    """How requests ended under each fault, and the reasons that clients were given."""
    rows = []
    for run in (r for r in samples.accepted(results) if r.run.phase == "faults"):
        listed = samples.asked(run)
        count = samples.errors(listed)
        ended = Counter(record.outcome.value for record in listed)
        told = "; ".join(f"{name}: {n} requests" for name, n in sorted(ended.items()))
        failed = estimates.share([count] if count else [])
        rows.append((run.run.series, run.run.arm, failed, told))
    blocks: list[Block] = [
        Table("Faults, brought about once each", ("fault", "arm", "failed", "ended"), tuple(rows))
        if rows
        else Text("No fault was brought about.")
    ]
    reasons = [(name, *one) for name, runs in at_target(results) for one in _reasons(runs)]
    blocks.append(
        Table("Reasons at the target cell", ("arm", "reason", "requests"), tuple(reasons))
        if reasons
        else Text("No request failed at the target cell.")
    )
    return Section("Fault and retry visibility", tuple(blocks))


def rollback(results: StudyResults) -> Section:
    """The proof, condition by condition."""
    proof = results.evidence.rollback
    if proof is None:
        says = "No rollback was tried. Without the proof ADOPT is impossible."
        return Section("Rollback proof", (Text(says, strong=True),))
    lacking = unmet(proof, results.evidence.rules.alpha)
    told = "The proof is whole." if not lacking else f"It lacks: {'; '.join(lacking)}."
    table = Table("", ("condition", "found"), _conditions(proof))
    return Section("Rollback proof", (Text(told, strong=bool(lacking)), table))


def _conditions(proof: RollbackProof) -> tuple[tuple[str, str | Figure], ...]:
    return (
        ("order to first good answer", f"{proof.return_s:g} s of {proof.limit_s:g} s"),
        ("requests in flight ended as planned", "yes" if proof.in_flight_as_planned else "no"),
        ("configuration against the one before", f"{proof.config_lines_changed} lines differ"),
        ("processes of the split left", f"{proof.processes_left} processes"),
        ("GPU memory above the level before", f"{proof.gpu_memory_above_mib:g} MiB"),
        ("ports left open", f"{proof.ports_left_open} ports"),
        ("KV leases left", f"{proof.kv_leases_left} leases"),
        ("greedy answers as before", "yes" if proof.same_outputs else "no"),
        ("TTFT, after over before", estimates.effect(proof.ttft)),
        ("tail ITL, after over before", estimates.effect(proof.tail_itl)),
        ("attainment, after against before", estimates.effect(proof.attainment)),
    )


def _reasons(runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    failed = Counter(
        f"{record.outcome.value}: {record.status or ''} {record.error}".strip()
        for run in runs
        for record in samples.asked(run)
        if standing(record).failed
    )
    return [(reason, f"{n} requests") for reason, n in failed.most_common(MOST)]
