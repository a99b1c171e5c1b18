"""The whole inference on simulated studies: how often it is right when the truth is known."""

import math
from collections import Counter
from dataclasses import dataclass

from splitserve.lab.stats.paired import Paired, ratios
from splitserve.lab.stats.shares import Count
from splitserve.lab.stats.simulate import Series, StudyModel, simulate
from splitserve.lab.verdict.comparison import Comparison, compare_all
from splitserve.lab.verdict.decide import decide
from splitserve.lab.verdict.evidence import Checks, Evidence, Handoffs, Pair, RunFigures
from splitserve.lab.verdict.improvement import improvement
from splitserve.lab.verdict.outcome import Outcome
from splitserve.lab.verdict.rollback import RollbackProof
from splitserve.lab.verdict.rules import Rules, Slo

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Counts over ``studies``.

    ``outcomes``: studies per verdict; ``weak``: those of ADOPT that are weak; ``rejected``: studies
    in which a latency was found to be better, whatever else was wrong; ``covered``: studies whose
    95 % interval held the truth, by quantity. With unequal error rates the true ratio of quantiles
    is not the model's ratio, and with unequal arms the true difference of attainment is not known
    without another simulation: such quantities are left out.
    """

    studies: int
    outcomes: dict[Outcome, int]
    weak: int
    rejected: int
    covered: dict[str, int]

    def share(self, outcome: Outcome) -> float:
        """Of studies that ended so."""
        return self.outcomes.get(outcome, 0) / self.studies

    def coverage(self, quantity: str) -> float:
        """Share of intervals that held the truth."""
        return self.covered[quantity] / self.studies


def rehearse(model: StudyModel, studies: int = 1000, seed: int = 1) -> Rehearsal:
    """Simulate and decide; what is not inference (hand-offs, rollback) is as it should be.

    The same from the same seed. 1,000 studies of the default size take half a minute of one core.
    """
    made = simulate(model, studies, seed)
    truth = _truth(model)
    rules = Rules(
        slo=Slo(model.ttft_limit_s, model.tail_itl_limit_s), pairs=model.pairs, aa_pairs=2
    )
    outcomes: Counter[Outcome] = Counter()
    covered: Counter[str] = Counter(dict.fromkeys(truth, 0))
    weak = rejected = 0
    for i in range(studies):
        control = _pairs(made.control, i, model.requests, tuple(map(float, range(model.aa_pairs))))
        target = _pairs(made.target, i, model.requests, made.positions)
        verdict = decide(_sound(rules, target, control))
        outcomes[verdict.outcome] += 1
        weak += verdict.weak and verdict.outcome is Outcome.ADOPT
        compared = compare_all(target)
        tests = improvement(compared, rules).tests
        rejected += any(tested.rejected for tested in tests.values())
        for name, true in truth.items():
            covered[name] += _effect(compared, name).interval(CONFIDENCE).holds(true)
    return Rehearsal(studies, dict(outcomes), weak, rejected, dict(covered))


def _truth(model: StudyModel) -> dict[str, float]:
    if model.error_a != model.error_b:
        return {}
    known = {"tail_itl": math.log(model.tail_itl_ratio), "ttft": math.log(model.ttft_ratio)}
    return known if any(known.values()) else {**known, "attainment": 0.0}


def _effect(compared: Comparison, quantity: str) -> Paired:
    effects = {
        "tail_itl": compared.tail_itl,
        "ttft": compared.ttft,
        "attainment": compared.attainment,
    }
    return effects[quantity]


def _pairs(
    series: Series, study: int, requests: int, positions: tuple[float, ...]
) -> tuple[Pair, ...]:
    def run(pair: int, arm: int) -> RunFigures:
        at = (study, pair, arm)
        return RunFigures(
            float(series.tail_itl_s[at]),
            float(series.ttft_s[at]),
            Count(int(series.good[at]), requests),
            Count(int(series.errors[at]), requests),
        )

    return tuple(Pair(run(j, 0), run(j, 1), when) for j, when in enumerate(positions))


def _sound(rules: Rules, target: tuple[Pair, ...], control: tuple[Pair, ...]) -> Evidence:
    """Evidence in which nothing but the figures of the target cell can stop the split."""
    same = ratios([1.0] * 6, [1.0] * 6)
    proof = RollbackProof(
        return_s=10,
        limit_s=600,
        in_flight_as_planned=True,
        config_lines_changed=0,
        processes_left=0,
        gpu_memory_above_mib=0,
        ports_left_open=0,
        kv_leases_left=0,
        same_outputs=True,
        attainment=same,
        ttft=same,
        tail_itl=same,
    )
    started = RunFigures(1.0, 1.0, Count(1, 1), Count(0, 1))
    return Evidence(
        rules=rules,
        checks=Checks(
            preflight=True,
            plan_unchanged=True,
            captured=True,
            environment_unchanged=True,
            retries_disclosed=True,
        ),
        target=target,
        control=control,
        second_start=(Pair(started, started, 0.0),),
        handoffs=Handoffs((0.05, 0.05), (Count(0, 2000),), share_of_ttft=0.1, local_tokens=0),
        rollback=proof,
    )
