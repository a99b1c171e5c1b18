"""A study from its first run to its last, or on from where it stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from splitserve.clock import Clock, monotonic
from splitserve.errors import SplitserveError
from splitserve.lab.plan.faults import why_not_made
from splitserve.lab.plan.phases import FAULTS, GOODPUT, Run, at_rate, runs_of
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.execute import Live
from splitserve.lab.run.faults.small_pool import with_small_pool
from splitserve.lab.run.fleet import Fleet, Open
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import Entry, Journal, State, now_text
from splitserve.lab.run.making import FUNCTION, Making
from splitserve.lab.run.preflight import Preflight
from splitserve.lab.run.prompts import Source
from splitserve.lab.run.rates import Rates
from splitserve.lab.run.rollback.go_back import ROLLBACK
from splitserve.lab.run.units import Unit, units_of
from splitserve.lab.run.voids import ATTEMPTS, INTERRUPTED, is_done, void, void_interrupted


class Told(Protocol):
    """Who is told how a study goes on. Nothing here compares arms."""

    def preflight(self) -> None:
        """The client is being tested."""

    def run(self, unit: Unit, run: Run, left_s: float) -> None:
        """``run`` begins; the study is over in about ``left_s`` seconds."""

    def live(self, live: Live) -> None:
        """A few times a second."""

    def say(self, line: str) -> None:
        """Something that stays on the screen: void, skipped, stopped."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a study needs besides its plan."""

    folder: StudyFolder
    source: Source
    opened: Open
    preflight: Preflight
    told: Told
    clock: Clock = monotonic


async def run_study(plan: Plan, setting: Setting) -> None:
    """Does every run that is not complete. Returns when nothing is left to be done.

    Raises UnavailableError, StartFailed and ConfigError where it cannot go on; what was done is
    kept, and the same call goes on from there.
    """
    runs = runs_of(plan)
    with setting.folder.held() as journal:
        void_interrupted(units_of(runs), journal, setting.folder)
        if all(is_done(unit, journal) for unit in units_of(runs)):
            return
        async with Fleet(with_small_pool(plan), setting.folder, setting.opened) as fleet:
            await fleet.check_running()
            setting.told.preflight()
            note = await setting.preflight(plan, runs)
            setting.folder.write_json("preflight.json", note)
            await _Course(plan, runs, setting, journal, fleet, note.processes).go()


class _Course:
    def __init__(
        self,
        plan: Plan,
        runs: Sequence[Run],
        setting: Setting,
        journal: Journal,
        fleet: Fleet,
        processes: int,
    ) -> None:
        self._plan = plan
        self._runs = runs
        self._setting = setting
        self._folder = setting.folder
        self._journal = journal
        self._fleet = fleet
        self._rates = Rates(plan.study, runs, journal, setting.folder)
        self._making = Making(
            plan, setting.folder, setting.source, fleet, setting.told.live, setting.clock, processes
        )

    async def go(self) -> None:
        units = units_of(self._runs)
        for at, unit in enumerate(units):
            if not is_done(unit, self._journal):
                await self._make(unit, units[at:])
            if unit.phase == FUNCTION and self._journal.invalid(unit.numbers) >= ATTEMPTS:
                self._leave_out(units[at + 1 :])
                return

    async def _make(self, unit: Unit, ahead: Sequence[Unit]) -> None:
        reason = self._why_not_made(unit)
        if reason is None:
            unit = self._at_its_rate(unit)
            reason = self._over_budget(unit)
        if reason is None:
            await self._unit(unit, unit.seconds + sum(one.seconds for one in ahead[1:]))
        else:
            self._skip(unit, reason)

    def _why_not_made(self, unit: Unit) -> str | None:
        run = unit.runs[0]
        if run.phase == FAULTS:
            return why_not_made(self._plan, run.series)
        if run.phase == GOODPUT:
            return self._rates.why_over(run)
        return self._no_way_back(unit)

    def _at_its_rate(self, unit: Unit) -> Unit:
        """A step of a search takes the longer the lower its rate, which is known only now."""
        if unit.phase != GOODPUT:
            return unit
        study = self._plan.study
        rates = [(run, self._rates.of(run)) for run in unit.runs]
        return Unit(tuple(run if r is None else at_rate(study, run, r) for run, r in rates))

    def _leave_out(self, units: Sequence[Unit]) -> None:
        for unit in units:
            if not is_done(unit, self._journal):
                self._skip(unit, "the split does not work, so that nothing of it can be timed")

    async def _unit(self, unit: Unit, left_s: float) -> None:
        """Until it counts, or has broken rules too often."""
        while self._journal.invalid(unit.numbers) < ATTEMPTS:
            reason = await self._attempt(unit, left_s)
            if reason is None:
                return
            self._setting.told.say(f"{unit.text()}: void: {reason}")

    async def _attempt(self, unit: Unit, left_s: float) -> str | None:
        """All runs of ``unit`` once, accepted together; else why they are void."""
        try:
            for run in unit.runs:
                self._setting.told.run(unit, run, left_s)
                reason = await self._run(run)
                if reason is not None:
                    void(unit, self._journal, self._folder, reason, broke=run.number)
                    await self._fleet.take_down()
                    return reason
        except BaseException as error:
            # Whatever stopped it, the pair is not whole, and the journal should say so now.
            known = isinstance(error, SplitserveError)
            why = f"{INTERRUPTED}: {error}" if known else INTERRUPTED
            void(unit, self._journal, self._folder, why, broke=None)
            raise
        for run in unit.runs:
            last = self._journal.last(run.number)
            assert last is not None
            accepted = msgspec.structs.replace(
                last, state=State.ACCEPTED, at=now_text(), seconds=0.0
            )
            self._journal.add(accepted)
        return None

    async def _run(self, run: Run) -> str | None:
        """One attempt, measured and on disk; or why it is void."""
        attempt, clock = self._journal.attempts(run.number) + 1, self._setting.clock
        began_s, rate = clock(), self._rates.of(run)
        started = Entry(
            number=run.number,
            attempt=attempt,
            state=State.STARTED,
            at=now_text(),
            arm=run.arm,
            rate_per_s=rate,
            folder=f"runs/{run.number}",
        )
        self._journal.add(started)
        made = await self._making.make(run, rate, attempt)
        self._journal.add(
            msgspec.structs.replace(
                started,
                state=State.MEASURED,
                at=now_text(),
                start=made.start,
                seconds=clock() - began_s,
            )
        )
        return made.why_void

    def _no_way_back(self, unit: Unit) -> str | None:
        asked = self._plan.study.rollback
        if unit.phase != ROLLBACK or asked is None:
            return None
        if self._fleet.are_started((unit.runs[0].arm, asked.target)):
            return None
        return "the lab goes back only between deployments that it starts itself"

    def _over_budget(self, unit: Unit) -> str | None:
        spent_s, allowed_s = self._journal.spent_s(), self._plan.study.budget.seconds
        if spent_s + unit.seconds <= allowed_s:
            return None
        return f"budget.seconds is {allowed_s:g}, and {spent_s:.0f} s are spent"

    def _skip(self, unit: Unit, reason: str) -> None:
        for run in unit.runs:
            skipped = Entry(
                number=run.number,
                attempt=self._journal.attempts(run.number),
                state=State.SKIPPED,
                at=now_text(),
                arm=run.arm,
                reason=reason,
                folder=f"runs/{run.number}",
            )
            self._journal.add(skipped)
        self._setting.told.say(f"{unit.text()}: not measured: {reason}")
