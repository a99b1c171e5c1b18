"""One run: its arm is brought up, its load sent in the way of its phase, and all of it kept."""

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from splitserve.clock import Clock
from splitserve.lab.arms.base import Described
from splitserve.lab.load.readiness import wait_until_serving
from splitserve.lab.load.record import Outcome
from splitserve.lab.load.request import LoadRequest
from splitserve.lab.plan.phases import FAULTS, Run
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.study import Study
from splitserve.lab.run.environment import changed
from splitserve.lab.run.execute import OnLive, Sending, Taken, take
from splitserve.lab.run.faults.seen import FAULT_FILE
from splitserve.lab.run.faults.strike import under_fault
from splitserve.lab.run.fleet import Fleet
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.function import why_not_working
from splitserve.lab.run.handoffs import run_handoffs
from splitserve.lab.run.prompts import Source
from splitserve.lab.run.rollback.go_back import ROLLBACK_FILE, UNDER_LOAD, GoingBack, go_back
from splitserve.lab.run.timing import Load, load_of
from splitserve.lab.run.validity import NEVER_SENT, why_void

FUNCTION: Final = "function"
_PROBE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Made:
    """``why_void`` None for a run that may count. ``start`` tells two starts of its arm apart."""

    why_void: str | None
    start: str


@dataclass(frozen=True, slots=True)
class Making:
    """What all runs of a study are made with. ``processes``: from how many open loops are sent."""

    plan: Plan
    folder: StudyFolder
    source: Source
    fleet: Fleet
    on_live: OnLive
    clock: Clock
    processes: int = 1

    async def make(self, run: Run, rate_per_s: float | None, attempt: int) -> Made:
        """One attempt, on disk whatever stops it. Raises UnavailableError, StartFailed and
        ConfigError where the arm is not to be had."""
        self.folder.new_run(run.number)
        anew = self._study.state.cache_reset == "restart"
        arm, described, fresh = await self.fleet.bring_up(run.arm, anew=anew)
        sending = Sending(self._study, arm, run, self._salt(run, attempt), self.processes)
        if fresh:
            await self._answers(sending)
        await arm.reset()
        await asyncio.sleep(self._study.state.settle_s)
        taken = Taken()
        try:
            load = load_of(run, rate_per_s, self.source)
            reason = await self._taken(sending, load, described, taken)
        finally:
            self.folder.write_records(run.number, taken.records)
            self.folder.write_json(f"runs/{run.number}/server.json", taken.server())
        return Made(reason, described.start)

    @property
    def _study(self) -> Study:
        return self.plan.study

    async def _taken(
        self, sending: Sending, load: Load, described: Described, taken: Taken
    ) -> str | None:
        if sending.run.series == UNDER_LOAD:
            return await self._go_back(sending, load, described, taken)
        if sending.run.phase == FAULTS:
            return await self._under_fault(sending, load, described, taken)
        await take(sending, load, described, taken, self.on_live)
        differs = changed(taken.before, taken.after) if taken.after else ()
        reason = why_void(taken.records, self._study, differs, taken.not_alive)
        if reason is None and sending.run.phase == FUNCTION:
            handoffs = run_handoffs(taken.metrics_before, taken.metrics_after)
            tells = any(name.startswith("splitserve_handoff") for name in taken.metrics_after)
            return why_not_working(taken.records, handoffs, tells)
        return reason

    async def _go_back(
        self, sending: Sending, load: Load, described: Described, taken: Taken
    ) -> str | None:
        asked = self._study.rollback
        assert asked is not None
        going = GoingBack(sending, load, described, self.fleet, asked.target, self.clock)
        proof = await go_back(
            going, taken, self.on_live, lambda arm: self._answers(replace(sending, arm=arm))
        )
        self.folder.write_json(f"runs/{sending.run.number}/{ROLLBACK_FILE}", proof)
        return None if taken.records else "nothing was under way when the return was ordered"

    async def _under_fault(
        self, sending: Sending, load: Load, described: Described, taken: Taken
    ) -> str | None:
        """A deployment that had a fault is no longer what others were measured on: it is stopped.
        That a process of it ended makes the run not void, that is what it looks at; nor does a
        client that was a little late, since no latency is read from it."""
        try:
            seen = await under_fault(sending, load, described, taken, self.on_live)
        finally:
            await self.fleet.take_down()
        if seen is None:
            return "nothing was under way when the fault should have struck"
        self.folder.write_json(f"runs/{sending.run.number}/{FAULT_FILE}", seen)
        unsent = sum(one.outcome is Outcome.NEVER_SENT for one in taken.records)
        if unsent > NEVER_SENT * len(taken.records):
            return f"the client was too late to send {unsent} of {len(taken.records)} requests"
        return None

    async def _answers(self, sending: Sending) -> None:
        """A started arm may be ready by its own account and still not answer."""
        client = await sending.client()
        try:
            prompt = self.source.vocab.ids("probe", 8)
            probe = LoadRequest("lab-probe", prompt, 2)
            await wait_until_serving(client, probe, _PROBE_S)
        finally:
            client.close()

    def _salt(self, run: Run, attempt: int) -> str | None:
        if self._study.state.cache_reset != "salt":
            return None
        return f"{self.plan.digest[:12]}-{run.number}-{attempt}"
