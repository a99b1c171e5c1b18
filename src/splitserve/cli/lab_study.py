"""The verbs of ``splitserve lab``."""

import asyncio
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from splitserve import __version__
from splitserve.cli.lab_status import Status
from splitserve.cli.lab_text import checked_lines, verdict_lines
from splitserve.cli.pull import RichProgress
from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.arms.base import Arm
from splitserve.lab.arms.opened import opened
from splitserve.lab.measure.tail import TailRule
from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.phases import Cell, check_budget, runs_of
from splitserve.lab.plan.resolve import Plan, read_plan
from splitserve.lab.plan.study import DESK, SMOKE
from splitserve.lab.report.build import report_of
from splitserve.lab.report.checkout import checkout_commit
from splitserve.lab.report.source import results_in
from splitserve.lab.report.write import write_report
from splitserve.lab.run.conclude import conclude
from splitserve.lab.run.figures import measures_of
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import State, newest_entries, read_entries
from splitserve.lab.run.preflight import full_preflight
from splitserve.lab.run.seen import seen_in
from splitserve.lab.run.sources import source_of
from splitserve.lab.run.study import Setting, run_study
from splitserve.lab.verdict.outcome import TOOL_ERROR_EXIT
from splitserve.lifecycle import StartFailed, StopSignals

RESULTS: Final = Path("results")


def check(study: Path, profile: str | None) -> int:
    """Exit code 0. Raises ConfigError for a plan that is refused."""
    plan = read_plan(study, profile)
    runs = runs_of(plan)
    check_budget(plan, runs)
    for line in checked_lines(plan, runs):
        print(line)
    return 0


def run(study: Path, profile: str | None, out: Path | None) -> int:
    """The verdict's exit code."""
    plan = _runnable(study, profile)
    folder = StudyFolder(out or default_folder(plan))
    try:
        folder.create(plan, study)
    except UnavailableError as error:
        return _tool_error(error, "nothing was begun")
    return _measure(plan, study, folder)


def resume(study: Path, profile: str | None, out: Path | None) -> int:
    """The verdict's exit code."""
    plan = _runnable(study, profile)
    folder = StudyFolder(out or default_folder(plan))
    folder.check_plan(plan)
    return _measure(plan, study, folder)


def report(study: Path, profile: str | None, out: Path | None) -> int:
    """The exit code of the verdict on what there is."""
    plan = read_plan(study, profile)
    folder = StudyFolder(out or default_folder(plan))
    folder.check_plan(plan)
    return _conclude(plan, study, folder)


def default_folder(plan: Plan) -> Path:
    """Where results go when nobody says: below the current folder."""
    header = plan.study.study
    return RESULTS / (f"{header.id}-{SMOKE}" if header.profile == SMOKE else header.id)


def _runnable(study: Path, profile: str | None) -> Plan:
    plan = read_plan(study, profile)
    if plan.study.study.verification == DESK:
        raise ConfigError(f'{study}: study.verification: a "{DESK}" study has no runs')
    check_budget(plan, runs_of(plan))
    return plan


def _measure(plan: Plan, study: Path, folder: StudyFolder) -> int:
    again = _command("resume", plan, study, folder)
    try:
        stopped = asyncio.run(_until_done(plan, study, folder))
    except StartFailed as error:
        print(*error.log, sep="\n", file=sys.stderr)
        return _tool_error(error, f"{_kept(plan, folder)}. Go on with: {again}")
    except UnavailableError as error:
        return _tool_error(error, f"{_kept(plan, folder)}. Go on with: {again}")
    if stopped is not None:
        print(f"stopped: {_kept(plan, folder)}. Go on with: {again}", file=sys.stderr)
        # 0 would be a verdict.
        return stopped or TOOL_ERROR_EXIT
    return _conclude(plan, study, folder)


def _tool_error(error: Exception, what_next: str) -> int:
    print(f"error: {error}", file=sys.stderr)
    print(what_next, file=sys.stderr)
    return TOOL_ERROR_EXIT


def _kept(plan: Plan, folder: StudyFolder) -> str:
    """What of the study is there, for whoever has to go on with it."""
    newest = newest_entries(folder.journal_path).values()
    done = sum(one.state in (State.ACCEPTED, State.SKIPPED) for one in newest)
    return (
        f"{done} of {len(runs_of(plan))} runs are complete and kept, what was half done counts for "
        "nothing"
    )


def _conclude(plan: Plan, study: Path, folder: StudyFolder) -> int:
    try:
        return _concluded(plan, study, folder)
    except UnavailableError as error:
        again = _command("report", plan, study, folder)
        return _tool_error(error, f"{_kept(plan, folder)}. Go on with: {again}")


def _concluded(plan: Plan, study: Path, folder: StudyFolder) -> int:
    evidence, verdict = conclude(plan, folder)
    for line in verdict_lines(verdict):
        print(line)
    results = results_in(
        folder,
        plan,
        evidence,
        verdict,
        made_at=datetime.now(UTC),
        version=__version__,
        commit=checkout_commit(),
        commands=(_command("run", plan, study, folder),),
        seen=seen_in(plan, folder),
    )
    *_, page = write_report(report_of(results), folder.path)
    print(f"report: {page}")
    return verdict.exit_code


def _command(verb: str, plan: Plan, study: Path, folder: StudyFolder) -> str:
    """As typed in a shell."""
    profile = ("--profile", SMOKE) if plan.study.study.profile == SMOKE else ()
    return shlex.join(("splitserve", "lab", verb, str(study), *profile, "--out", str(folder.path)))


async def _until_done(plan: Plan, study: Path, folder: StudyFolder) -> int | None:
    """None when every run was made, else the exit code of whoever asked to stop."""
    studies = study.parent

    def open_arm(planned: PlannedArm) -> Arm:
        place = folder.path / "arms" / planned.label
        return opened(planned, place, studies, plan.study.state.cache_reset)

    with RichProgress() as progress:
        source = source_of(plan, studies, progress)
    with _status(plan, folder) as status:
        setting = Setting(folder, source, open_arm, full_preflight, status)
        loop = asyncio.get_running_loop()
        running = asyncio.create_task(run_study(plan, setting))
        with StopSignals(lambda: loop.call_soon_threadsafe(running.cancel)) as signals:
            await asyncio.wait([running])
    if running.cancelled():
        return signals.exit_code
    running.result()
    return None


def _status(plan: Plan, folder: StudyFolder) -> Status:
    budget_s = plan.study.budget.seconds

    def budget_left() -> float:
        return budget_s - sum(one.seconds for one in read_entries(folder.journal_path))

    def rule_of(cell: Cell) -> TailRule:
        return measures_of(plan.study, cell).rule

    return Status(sys.stderr, rule_of, budget_left)
