"""The results of a study from its folder."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.load.record import RequestRecord, from_line
from splitserve.lab.plan.config_diff import Config
from splitserve.lab.plan.phases import FAULTS, Run, runs_of, target_cell
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.run.faults.seen import FAULT_FILE, FaultSeen
from splitserve.lab.run.figures import measures_of
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import Entry, State, read_entries
from splitserve.lab.verdict.evidence import Evidence
from splitserve.lab.verdict.outcome import Verdict

_KV_BYTES: Final = "splitserve_handoff_bytes_total"


def results_in(
    folder: StudyFolder,
    plan: Plan,
    evidence: Evidence,
    verdict: Verdict,
    *,
    made_at: datetime,
    version: str,
    commit: str | None = None,
    commands: tuple[str, ...] = (),
    seen: Mapping[str, str] | None = None,
) -> StudyResults:
    """What ``folder`` holds, with what was decided from it.

    Every attempt is there, and a run that was never begun as PLANNED. Raises ConfigError for a
    file that is none of ours, UnavailableError for one that cannot be read.
    """
    entries = read_entries(folder.journal_path)
    runs = tuple(one for run in runs_of(plan) for one in _attempts(folder, run, entries))
    single, split = (_config(folder, arm.label) for arm in (plan.baseline, plan.split))
    return StudyResults(
        plan=plan,
        evidence=evidence,
        verdict=verdict,
        runs=runs,
        slo=measures_of(plan.study, target_cell(plan.study)).slo,
        made_at=made_at,
        version=version,
        commit=commit,
        seen=seen or {},
        configs=None if single is None or split is None else (single, split),
        commands=commands,
        self_test=str((folder.read_json("preflight.json") or {}).get("self_test", "")),
    )


def _attempts(folder: StudyFolder, run: Run, entries: list[Entry]) -> list[RunResult]:
    """One result per attempt, as its last entry has it."""
    begun = [e for e in entries if e.number == run.number and e.state is not State.PLANNED]
    if not begun:
        return [RunResult(run, State.PLANNED)]
    last = {entry.attempt: entry for entry in begun}
    return [_result(folder, run, last[attempt]) for attempt in sorted(last)]


def _result(folder: StudyFolder, run: Run, entry: Entry) -> RunResult:
    place = entry.folder or f"runs/{run.number}"
    kept = entry.state is State.ACCEPTED
    server = (folder.read_json(f"{place}/server.json") or {}) if kept else {}
    return RunResult(
        run=run,
        state=entry.state,
        records=_records(folder, place) if kept else (),
        reason=entry.reason,
        attempt=entry.attempt,
        rate_per_s=entry.rate_per_s,
        before=server.get("before", {}).get("environment", {}),
        after=server.get("after", {}).get("environment", {}),
        fault=_fault(folder, place) if kept and run.phase == FAULTS else None,
        kv_bytes=_kv_bytes(server),
    )


def _records(folder: StudyFolder, place: str) -> tuple[RequestRecord, ...]:
    path = folder.path / place / "requests.jsonl"
    try:
        return tuple(from_line(line) for line in path.read_bytes().splitlines())
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error.strerror}") from error


def _fault(folder: StudyFolder, place: str) -> FaultSeen | None:
    told = folder.read_json(f"{place}/{FAULT_FILE}")
    try:
        return None if told is None else msgspec.convert(told, FaultSeen)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{folder.path / place / FAULT_FILE} tells of no fault: {error}"
        ) from error


def _kv_bytes(server: Mapping[str, Any]) -> float | None:
    """Between workers of ours, in the run."""
    before, after = (server.get(side, {}).get("metrics", {}) for side in ("before", "after"))
    moved = after.get(_KV_BYTES)
    return None if moved is None else float(moved - before.get(_KV_BYTES, 0.0))


def _config(folder: StudyFolder, label: str) -> Config | None:
    told = folder.read_json(f"arms/{label}.json")
    return None if told is None else dict(told["config"])
