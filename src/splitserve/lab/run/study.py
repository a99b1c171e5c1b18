"""A study from its first run to its last, or on from where it stopped."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import msgspec

from splitserve.clock import Clock, monotonic
from splitserve.lab.arms.base import Described
from splitserve.lab.load.readiness import wait_until_serving
from splitserve.lab.load.request import LoadRequest
from splitserve.lab.plan.phases import Run, runs_of
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.study import Study
from splitserve.lab.run.environment import changed
from splitserve.lab.run.execute import Live, Sending, Taken, take
from splitserve.lab.run.fleet import Fleet, Open
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.function import why_not_working
from splitserve.lab.run.handoffs import run_handoffs
from splitserve.lab.run.journal import Entry, Journal, State, now_text
from splitserve.lab.run.preflight import Preflight
from splitserve.lab.run.prompts import Source
from splitserve.lab.run.rates import CAPACITY, capacity, is_share, rate_of
from splitserve.lab.run.rollback.go_back import (
    ROLLBACK,
    ROLLBACK_FILE,
    UNDER_LOAD,
    GoingBack,
    go_back,
)
from splitserve.lab.run.timing import Load, load_of
from splitserve.lab.run.units import NOT_DONE, Unit, units_of
from splitserve.lab.run.validity import why_void

ATTEMPTS: Final = 2
"""A pair that breaks a rule is repeated once."""

FUNCTION: Final = "function"
INTERRUPTED: Final = "the lab was stopped"
_PROBE_S: Final = 60.0


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
        _void_interrupted(units_of(runs), journal, setting.folder)
        if all(_is_done(unit, journal) for unit in units_of(runs)):
            return
        async with Fleet(plan, setting.folder, setting.opened) as fleet:
            await fleet.check_running()
            setting.told.preflight()
            note = await setting.preflight(plan, runs)
            setting.folder.write_json("preflight.json", note)
            await _Course(plan.study, plan.digest, runs, setting, journal, fleet).go()


class _Course:
    def __init__(
        self,
        study: Study,
        digest: str,
        runs: Sequence[Run],
        setting: Setting,
        journal: Journal,
        fleet: Fleet,
    ) -> None:
        self._study = study
        self._digest = digest
        self._runs = runs
        self._setting = setting
        self._folder = setting.folder
        self._journal = journal
        self._fleet = fleet

    async def go(self) -> None:
        units = units_of(self._runs)
        for at, unit in enumerate(units):
            if not _is_done(unit, self._journal):
                await self._make(unit, units[at:])
            if unit.phase == FUNCTION and self._journal.invalid(unit.numbers) >= ATTEMPTS:
                self._leave_out(units[at + 1 :])
                return

    async def _make(self, unit: Unit, ahead: Sequence[Unit]) -> None:
        reason = NOT_DONE.get(unit.phase) or self._no_way_back(unit) or self._over_budget(unit)
        if reason:
            self._skip(unit, reason)
        else:
            left_s = sum(one.seconds for one in ahead if one.phase not in NOT_DONE)
            await self._unit(unit, left_s)

    def _leave_out(self, units: Sequence[Unit]) -> None:
        for unit in units:
            if not _is_done(unit, self._journal):
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
                    _void(unit, self._journal, self._folder, reason, broke=run.number)
                    await self._fleet.take_down()
                    return reason
        except BaseException:
            # Whatever stopped it, the pair is not whole, and the journal should say so now.
            _void(unit, self._journal, self._folder, INTERRUPTED, broke=None)
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
        self._folder.new_run(run.number)
        began_s, rate = clock(), rate_of(run.cell, self._study, self._capacity(run))
        anew = self._study.state.cache_reset == "restart"
        self._add(run, State.STARTED, attempt=attempt, rate_per_s=rate)
        arm, described, fresh = await self._fleet.bring_up(run.arm, anew=anew)
        sending = Sending(self._study, arm, run, self._salt(run, attempt))
        if fresh:
            await self._answers(sending)
        await arm.reset()
        await asyncio.sleep(self._study.state.settle_s)
        taken = Taken()
        try:
            load = load_of(run, rate, self._setting.source)
            if run.series == UNDER_LOAD:
                reason = await self._go_back(sending, load, described, taken)
            else:
                await take(sending, load, described, taken, self._setting.told.live)
                reason = self._why_void(run, taken)
        finally:
            self._folder.write_records(run.number, taken.records)
            self._folder.write_json(f"runs/{run.number}/server.json", taken.server())
        self._add(
            run,
            State.MEASURED,
            attempt=attempt,
            start=described.start,
            rate_per_s=rate,
            seconds=clock() - began_s,
        )
        return reason

    async def _go_back(
        self, sending: Sending, load: Load, described: Described, taken: Taken
    ) -> str | None:
        going = GoingBack(sending, load, described, self._fleet, self._back, self._setting.clock)
        proof = await go_back(
            going,
            taken,
            self._setting.told.live,
            lambda arm: self._answers(replace(sending, arm=arm)),
        )
        self._folder.write_json(f"runs/{sending.run.number}/{ROLLBACK_FILE}", proof)
        return None if taken.records else "nothing was under way when the return was ordered"

    def _why_void(self, run: Run, taken: Taken) -> str | None:
        differs = changed(taken.before, taken.after) if taken.after else ()
        reason = why_void(taken.records, self._study, differs, taken.not_alive)
        if reason is None and run.phase == FUNCTION:
            handoffs = run_handoffs(taken.metrics_before, taken.metrics_after)
            tells = any(name.startswith("splitserve_handoff") for name in taken.metrics_after)
            return why_not_working(taken.records, handoffs, tells)
        return reason

    async def _answers(self, sending: Sending) -> None:
        """A started arm may be ready by its own account and still not answer."""
        client = await sending.client()
        try:
            prompt = self._setting.source.vocab.ids("probe", 8)
            probe = LoadRequest("lab-probe", prompt, 2)
            await wait_until_serving(client, probe, _PROBE_S)
        finally:
            client.close()

    def _capacity(self, run: Run) -> float | None:
        if not is_share(run.cell, self._study):
            return None
        rungs = [
            one
            for one in self._runs
            if one.series == CAPACITY and self._journal.is_accepted(one.number)
        ]
        records = {one.number: self._folder.read_records(one.number) for one in rungs}
        return capacity(self._study, rungs, records)

    def _salt(self, run: Run, attempt: int) -> str | None:
        if self._study.state.cache_reset != "salt":
            return None
        return f"{self._digest[:12]}-{run.number}-{attempt}"

    def _no_way_back(self, unit: Unit) -> str | None:
        both = self._fleet.are_started((unit.runs[0].arm, self._back))
        if unit.phase != ROLLBACK or both:
            return None
        return "the lab goes back only between deployments that it starts itself"

    @property
    def _back(self) -> str:
        asked = self._study.rollback
        return self._study.baseline.name if asked is None else asked.target

    def _over_budget(self, unit: Unit) -> str | None:
        spent_s, allowed_s = self._journal.spent_s(), self._study.budget.seconds
        if spent_s + unit.seconds <= allowed_s:
            return None
        return f"budget.seconds is {allowed_s:g}, and {spent_s:.0f} s are spent"

    def _skip(self, unit: Unit, reason: str) -> None:
        for run in unit.runs:
            self._add(run, State.SKIPPED, reason=reason)
        self._setting.told.say(f"{unit.text()}: not measured: {reason}")

    def _add(
        self,
        run: Run,
        state: State,
        *,
        attempt: int | None = None,
        start: str = "",
        rate_per_s: float | None = None,
        seconds: float = 0.0,
        reason: str = "",
    ) -> None:
        self._journal.add(
            Entry(
                number=run.number,
                attempt=self._journal.attempts(run.number) if attempt is None else attempt,
                state=state,
                at=now_text(),
                arm=run.arm,
                start=start,
                rate_per_s=rate_per_s,
                seconds=seconds,
                reason=reason,
                folder=f"runs/{run.number}",
            )
        )


def _is_done(unit: Unit, journal: Journal) -> bool:
    """Complete, given up, or left out: resuming does not come back to it."""
    lasts = [journal.last(number) for number in unit.numbers]
    states = {None if last is None else last.state for last in lasts}
    if states == {State.SKIPPED}:
        return True
    given_up = journal.invalid(unit.numbers) >= ATTEMPTS
    return states == {State.ACCEPTED} or given_up


def _void_interrupted(units: Sequence[Unit], journal: Journal, folder: StudyFolder) -> None:
    """What a lab that died left half done is void as a whole."""
    for unit in units:
        if not _is_done(unit, journal):
            _void(unit, journal, folder, INTERRUPTED, broke=None)


def _void(
    unit: Unit, journal: Journal, folder: StudyFolder, reason: str, *, broke: int | None
) -> None:
    """Sets all attempts of ``unit`` that are under way aside. ``broke``: the run that broke a rule,
    None when the lab was stopped."""
    for run in unit.runs:
        last = journal.last(run.number)
        if last is None or last.state in (State.VOID, State.SKIPPED):
            continue
        invalid = run.number == broke
        kept = folder.set_aside(run.number, last.attempt)
        journal.add(
            msgspec.structs.replace(
                last,
                state=State.VOID,
                at=now_text(),
                reason=reason if invalid or broke is None else f"its pair is void: {reason}",
                seconds=0.0,
                invalid=invalid,
                folder=kept,
            )
        )
