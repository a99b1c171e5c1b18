"""Whether one can go back."""

from splitserve.lab.report import estimates
from splitserve.lab.report.blocks import Section, Table, Text
from splitserve.lab.report.figure import Figure, number
from splitserve.lab.report.results import StudyResults
from splitserve.lab.verdict.rollback import RollbackProof, unmet


def rollback(results: StudyResults) -> Section:
    """The proof, condition by condition."""
    proof = results.evidence.rollback
    if proof is None:
        says = (
            "No rollback was tried. Without the proof ADOPT is impossible. To try it: [rollback] "
            "in the plan, with arms that the lab starts from their topologies."
        )
        return Section("Rollback proof", (Text(says, strong=True),))
    lacking = unmet(proof, results.evidence.rules.alpha)
    lacks = "; ".join(one.says for one in lacking)
    told = f"It lacks: {lacks}." if lacking else "The proof is whole."
    table = Table("", ("condition", "found"), _conditions(proof))
    return Section("Rollback proof", (Text(told, strong=bool(lacking)), table))


def _conditions(proof: RollbackProof) -> tuple[tuple[str, str | Figure], ...]:
    return (
        ("order to first good answer", f"{number(proof.return_s)} s of {number(proof.limit_s)} s"),
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
