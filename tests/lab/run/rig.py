"""A study run without the client's self-test, which has tests of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path

from splitserve.lab.arms.base import Arm
from splitserve.lab.arms.opened import opened
from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.phases import Run
from splitserve.lab.plan.resolve import Plan, read_plan
from splitserve.lab.run.execute import Live
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.preflight import PreflightNote
from splitserve.lab.run.sources import source_of
from splitserve.lab.run.study import Setting, run_study
from splitserve.lab.run.units import Unit
from splitserve.modelstore.progress import Silent


class Heard:
    """Keeps what it is told; ``on_run`` is called as each run begins."""

    def __init__(self, on_run: Callable[[Run], None] = lambda run: None) -> None:
        self.runs: list[int] = []
        self.lines: list[str] = []
        self._on_run = on_run

    def preflight(self) -> None:
        self.lines.append("preflight")

    def run(self, unit: Unit, run: Run, left_s: float) -> None:
        self.runs.append(run.number)
        self._on_run(run)

    def live(self, live: Live) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)


async def passed(plan: Plan, runs: Sequence[Run]) -> PreflightNote:
    return PreflightNote(True, "not made here")


def begun(study: Path, out: Path) -> tuple[Plan, StudyFolder]:
    plan, folder = read_plan(study), StudyFolder(out)
    folder.create(plan, study)
    return plan, folder


async def go(study: Path, plan: Plan, folder: StudyFolder, heard: Heard | None = None) -> Heard:
    def open_arm(planned: PlannedArm) -> Arm:
        place = folder.path / "arms" / planned.label
        return opened(planned, place, study.parent, plan.study.state.cache_reset)

    heard = heard or Heard()
    source = source_of(plan, study.parent, Silent())
    await run_study(plan, Setting(folder, source, open_arm, passed, heard))
    return heard
