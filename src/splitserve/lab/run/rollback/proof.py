"""The proof that one can go back, from what was seen and the runs before and after."""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.outcomes import measured
from splitserve.lab.plan.study import Rollback, Study
from splitserve.lab.run.accepted import DoneRun, pairs_in
from splitserve.lab.run.environment import changed
from splitserve.lab.run.figures import figures, measures_of
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.rollback.go_back import (
    AFTER,
    BEFORE,
    ROLLBACK,
    ROLLBACK_FILE,
    UNDER_LOAD,
    Returned,
)
from splitserve.lab.run.signals import differing, same_answers
from splitserve.lab.stats.paired import Paired, differences, ratios
from splitserve.lab.stats.shares import surely_more
from splitserve.lab.verdict.evidence import RunFigures
from splitserve.lab.verdict.rollback import RollbackProof

PARTS: Final = 8
_SMALLEST_PART: Final = 5

_OF_START: Final = ("arm.start", "arm.gateway.port")


def rollback_proof(
    study: Study, folder: StudyFolder, done: Sequence[DoneRun]
) -> RollbackProof | None:
    """None unless all three runs of it count."""
    runs = {one.run.series: one for one in done if one.run.phase == ROLLBACK}
    if study.rollback is None or runs.keys() != {BEFORE, UNDER_LOAD, AFTER}:
        return None
    number = runs[UNDER_LOAD].run.number
    seen = msgspec.convert(folder.read_json(f"runs/{number}/{ROLLBACK_FILE}"), Returned)
    before, after = runs[BEFORE], runs[AFTER]
    parts = _parts(study, before, after)
    if not parts:
        return None
    a, b = [one for one, _ in parts], [other for _, other in parts]
    memory = seen.gpu_memory_above_mib
    return RollbackProof(
        return_s=seen.return_s,
        limit_s=study.rollback.rto_s,
        in_flight_as_planned=_as_planned(study.rollback, seen),
        config_lines_changed=_lines_changed(before, after),
        processes_left=seen.processes_left,
        # What nobody can tell is not shown to be given back.
        gpu_memory_above_mib=math.inf if memory is None else memory,
        ports_left_open=seen.ports_left_open,
        # A lease lives in a worker, and ends with it.
        kv_leases_left=seen.processes_left,
        same_outputs=_same_outputs(study, done, before, after),
        attainment=differences([f.attained.share for f in a], [f.attained.share for f in b]),
        ttft=ratios([f.ttft_s for f in a], [f.ttft_s for f in b]),
        tail_itl=_ratios_of_tails(a, b),
        margin=study.rollback.equivalence_margin,
    )


def _same_outputs(study: Study, done: Sequence[DoneRun], before: DoneRun, after: DoneRun) -> bool:
    """No more answers differ than two runs of the single arm differ by themselves. Drawn ones need
    not be alike."""
    if study.workload.sampling.temperature != 0:
        return True
    now = same_answers(before.records, after.records)
    usual = differing(pairs_in(done, "baseline", "A/A"))
    allowed = study.allowances.output_differs_load_share
    return now is not None and not surely_more(now, usual, allowed)


def _parts(study: Study, before: DoneRun, after: DoneRun) -> list[tuple[RunFigures, RunFigures]]:
    """Both runs cut into the same contiguous parts of their requests: several pairs of one run."""
    how = measures_of(study, before.run.cell)
    first, second = measured(before.records), {r.request_id: r for r in measured(after.records)}
    ordered = [r for r in sorted(first, key=_due) if r.request_id in second]
    count = max(1, min(PARTS, len(ordered) // _SMALLEST_PART))
    size = len(ordered) / count
    found = []
    for part in range(count):
        cut = ordered[round(part * size) : round((part + 1) * size)]
        a, b = figures(cut, how), figures([second[r.request_id] for r in cut], how)
        if a is not None and b is not None:
            found.append((a, b))
    return found


def _due(record: RequestRecord) -> float:
    return record.intended_s


def _ratios_of_tails(a: Sequence[RunFigures], b: Sequence[RunFigures]) -> Paired:
    return ratios([f.tail_itl_s for f in a], [f.tail_itl_s for f in b])


def _as_planned(asked: Rollback, seen: Returned) -> bool:
    """A client that is told to retry or to fail has nothing to expect of the server. Where nothing
    was under way, nothing is shown."""
    return asked.in_flight != "finish" or 0 < seen.in_flight == seen.served


def _lines_changed(before: DoneRun, after: DoneRun) -> int:
    def lasting(run: DoneRun) -> dict[str, str]:
        return {
            name: value
            for name, value in run.environment.items()
            if name.startswith("arm.") and name not in _OF_START
        }

    return len(changed(lasting(before), lasting(after)))
