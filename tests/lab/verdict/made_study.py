"""A study that ends in ADOPT, for tests to spoil one thing at a time."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from splitserve.lab.stats.paired import ratios
from splitserve.lab.stats.shares import Count
from splitserve.lab.verdict.evidence import (
    Checks,
    Evidence,
    Handoffs,
    Pair,
    RunFigures,
    Signals,
)
from splitserve.lab.verdict.rollback import RollbackProof
from splitserve.lab.verdict.rules import Rules, Slo

RULES = Rules(slo=Slo(ttft_s=2.0, tail_itl_s=0.050, attainment=0.95))
WOBBLE = (0.02, -0.01, 0.015, -0.02, 0.01, -0.015, 0.005, -0.005)
INTENDED = 1000


def run(**changes: Any) -> RunFigures:
    """A run of the single configuration that misses its SLO on tail ITL."""
    plain = RunFigures(
        tail_itl_s=0.080,
        ttft_s=1.2,
        attained=Count(700, INTENDED),
        errors=Count(0, INTENDED),
        first_gap_s=0.03,
        throughput=500.0,
    )
    return replace(plain, **changes)


SPLIT = {"tail_itl_s": 0.040, "attained": Count(985, INTENDED)}


def pairs(
    a: RunFigures | None = None,
    b: RunFigures | None = None,
    count: int = 8,
    wobble: Sequence[float] = WOBBLE,
) -> tuple[Pair, ...]:
    """``count`` pairs of a and b, in which b's times wobble by a few percent."""
    first = a or run()
    made = []
    for i in range(count):
        second = b or first
        by = math.exp(wobble[i % len(wobble)])
        assert second.first_gap_s is not None
        assert second.throughput is not None
        shaken = replace(
            second,
            tail_itl_s=second.tail_itl_s * by,
            ttft_s=second.ttft_s * by,
            first_gap_s=second.first_gap_s * by,
            throughput=second.throughput * by,
        )
        made.append(Pair(first, shaken, 2.0 * i + 0.5))
    return tuple(made)


def proof(**changes: Any) -> RollbackProof:
    """A rollback that worked."""
    same = ratios([1.0] * 6, [1.01, 0.99, 1.0, 1.01, 0.99, 1.0])
    plain = RollbackProof(
        return_s=20.0,
        limit_s=600.0,
        in_flight_as_planned=True,
        config_lines_changed=0,
        processes_left=0,
        gpu_memory_above_mib=12.0,
        ports_left_open=0,
        kv_leases_left=0,
        same_outputs=True,
        attainment=same,
        ttft=same,
        tail_itl=same,
    )
    return replace(plain, **changes)


def study(**changes: Any) -> Evidence:
    """Whole and favourable."""
    plain = Evidence(
        rules=RULES,
        checks=Checks(
            preflight=True,
            plan_unchanged=True,
            captured=True,
            environment_unchanged=True,
            retries_disclosed=True,
        ),
        target=pairs(b=run(**SPLIT)),
        control=pairs(count=4),
        second_start=pairs(a=run(**SPLIT), count=2),
        handoffs=Handoffs(
            p95_s=(0.050, 0.055, 0.052, 0.049),
            failed=(Count(0, 1000),) * 4,
            share_of_ttft=0.05,
            local_tokens=0.5,
        ),
        signals=Signals(),
        rollback=proof(),
    )
    return replace(plain, **changes)
