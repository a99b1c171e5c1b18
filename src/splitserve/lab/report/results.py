"""What a report is made from: the plan, what ran, and what was decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.attainment import Slo
from splitserve.lab.plan.config_diff import Config
from splitserve.lab.plan.phases import Run
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.faults.seen import FaultSeen
from splitserve.lab.run.journal import State
from splitserve.lab.verdict.evidence import Evidence
from splitserve.lab.verdict.outcome import Verdict


@dataclass(frozen=True, slots=True)
class RunResult:
    """One attempt at a run, from 1. ``records`` with warm-up; ``before``, ``after``: environment.

    ``kv_bytes``: moved between workers in this run, None where no server counted it. ``fault``:
    what was seen of the one that this run was made for.

    Only accepted ones enter figures. ``rate_per_s`` is what was asked for, None in a closed loop.
    """

    run: Run
    state: State
    records: tuple[RequestRecord, ...] = ()
    reason: str = ""
    attempt: int = 1
    rate_per_s: float | None = None
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    kv_bytes: float | None = None
    fault: FaultSeen | None = None


@dataclass(frozen=True, slots=True)
class StudyResults:
    """``slo`` has the rule by which tail ITL is taken. ``seen``: what servers said, by
    ``class.name`` as in ``plan.table``. ``configs``: effective ones of the single and the split
    arm, None where only the plan's are known. ``self_test``: what the client's test said.
    ``commit``: of the checkout that the lab runs from, None for an installed package.
    """

    plan: Plan
    evidence: Evidence
    verdict: Verdict
    runs: tuple[RunResult, ...]
    slo: Slo
    made_at: datetime
    version: str
    commit: str | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    configs: tuple[Config, Config] | None = None
    commands: tuple[str, ...] = ()
    self_test: str = ""
