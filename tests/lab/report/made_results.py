"""A small study with its records made from a seed, for the report's tests."""

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from lab.plan.made_plan import data, plan_of
from lab.verdict.made_study import study
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.measure.attainment import Slo
from splitserve.lab.measure.tail import TailRule
from splitserve.lab.plan.phases import Run, runs_of
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.run.journal import State
from splitserve.lab.verdict.decide import decide
from splitserve.lab.verdict.evidence import Evidence

MADE_AT = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
REQUESTS = 40


def results(evidence: Evidence | None = None, requests: int = REQUESTS, **changes: Any) -> Any:
    """Two axes, goodput, a fault and a rollback, every run accepted but two."""
    made = data(
        axes=[
            {"name": "prompt_len", "values": ["S", "M"]},
            {"name": "concurrency", "values": [4]},
        ],
        further={"goodput_runs": 2, "faults": ["kill_prefill"]},
        workload__corpus__requests=300,
        stats__pairs=4,
        stats__aa_pairs=2,
        stats__series_pairs=3,
    )
    plan = plan_of(made)
    found = evidence or study()
    runs = tuple(ran(run, requests) for run in runs_of(plan))
    cut = replace(runs[0], state=State.VOID, records=(), reason="the server died <b>here</b>")
    plain = StudyResults(
        plan=plan,
        evidence=found,
        verdict=decide(found),
        runs=(cut, *runs),
        slo=Slo(ttft_s=1.0, itl_s=0.1, rule=TailRule.Q95),
        made_at=MADE_AT,
        version="0.1.0",
        commands=("splitserve lab run studies/t.toml",),
        self_test="all forms read as they were scripted",
    )
    return replace(plain, **changes)


def ran(run: Run, requests: int = REQUESTS) -> RunResult:
    """An accepted run whose split arm has shorter gaps and a later first token."""
    rng = random.Random(f"{run.shard} {run.side}")
    records = [record(run, k, rng) for k in range(requests)]
    seen = {"version": "1", "driver": "570"}
    later = run.position if run.phase == "goodput" else run.pair or 0
    rate = None if run.cell.rate_per_s is None else run.cell.rate_per_s + later
    return RunResult(run, State.ACCEPTED, tuple(records), rate_per_s=rate, before=seen, after=seen)


def lost(records: Iterable[RequestRecord]) -> tuple[RequestRecord, ...]:
    """The same requests, every answer cut."""
    cut = {"outcome": Outcome.TRUNCATED, "error": "cut"}
    return tuple(msgspec.structs.replace(one, **cut) for one in records)


def record(run: Run, number: int, rng: random.Random) -> RequestRecord:
    """One answer of 24 tokens; every fifteenth of a fault's run is cut."""
    split = run.arm != "one"
    due = 0.5 * number
    sent = due + 0.0005
    first = sent + rng.uniform(0.2, 0.5) * (1.2 if split else 1.0)
    events, at = [(first, 1)], first
    for _ in range(23):
        at += rng.uniform(0.02, 0.04) + (rng.random() < 0.1) * (0.01 if split else 0.2)
        events.append((at, 1))
    failed = run.phase == "faults" and number % 15 == 0
    return RequestRecord(
        request_id=f"r{run.shard}-{number}",
        arm=run.arm,
        run=str(run.number),
        intended_s=due,
        sent_s=sent,
        first_byte_s=first,
        events=events,
        ended_s=at,
        outcome=Outcome.TRUNCATED if failed else Outcome.OK,
        counting=Counting.IDS,
        error="the stream ended <early> & badly" if failed else "",
        metrics=times(1000 * (first - sent), 1000 * (events[1][0] - first), split=split),
    )


def times(ttft_ms: float, gap_ms: float, *, split: bool) -> dict[str, float]:
    """What a gateway tells of an answer: all of TTFT but 1 ms, and of the first gap of a split."""
    queue_ms = 0.25 * ttft_ms
    told = {"admission_ms": 6.0 if split else 2.0, "room_wait_ms": 1.0, "queue_time_ms": queue_ms}
    computed_ms = ttft_ms - queue_ms - told["admission_ms"] - 1.0
    if not split:
        return told | {"time_to_first_token_ms": computed_ms}
    return told | {
        "grant_time_ms": 3.0,
        "prefill_queue_time_ms": queue_ms,
        "prefill_time_ms": computed_ms,
        "kv_handoff_ms": 0.6 * gap_ms,
        "kv_handoff_upper_ms": 0.9 * gap_ms,
        "kv_exposed_ms": 2.0,
        "decode_first_step_ms": 0.3 * gap_ms,
        "first_token_after_handoff": 0.0,
    }
