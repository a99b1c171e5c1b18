"""Records on disk as the evidence of a verdict. What was not measured is None, never passed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from splitserve.lab.plan.phases import ALONE, target_cell
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.study import CHUNKED, CONCURRENCY, PROMPT_LEN, PROXY, Study
from splitserve.lab.run.accepted import DonePair, DoneRun, accepted_runs, as_evidence, pairs_in
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.function_state import function_works
from splitserve.lab.run.rollback.proof import rollback_proof
from splitserve.lab.run.rulebook import rules_of
from splitserve.lab.run.signals import Answers, answers_of, handoffs_of, signals_of
from splitserve.lab.stats.interval import mean
from splitserve.lab.verdict.evidence import Checks, Evidence, Pair, RunFigures, Signals
from splitserve.launch.topology import VLLM

_BLOCK_TOKENS: Final = 16
_PER_START: Final = ("arm.start", "host.boot_id", "host.load", "host.memory_available")
"""Differs from one start of an arm, or of the machine, to the next, with nothing changed."""


def gather(plan: Plan, folder: StudyFolder) -> Evidence:
    """The evidence of a study as far as it has come. Raises ConfigError for files that are none."""
    done = tuple(accepted_runs(plan, folder))
    target = pairs_in(done, "target", "target")
    chunked = _best_row(done, plan, CHUNKED)
    proxy = _best_row(done, plan, PROXY)
    return Evidence(
        rules=rules_of(plan.study),
        checks=_checks(plan, folder, target),
        target=as_evidence(target),
        control=as_evidence(pairs_in(done, "baseline", "A/A")),
        chunked=as_evidence(chunked),
        chunked_split=_crossed(chunked, target),
        passthrough_split=_crossed(proxy, target),
        short=_short(plan.study, done, target),
        hard=_hard(plan.study, done),
        closed_loop=_closed_loop(plan.study, done),
        second_start=second_start(target),
        handoffs=handoffs_of(target, _block_tokens(plan), own_engine=_own_engine(plan)),
        signals=_signals(plan.study, done, target),
        rollback=rollback_proof(plan.study, folder, done),
    )


def _signals(study: Study, done: Sequence[DoneRun], target: Sequence[DonePair]) -> Signals:
    found = signals_of(target, _answers(study, done, target))
    return replace(found, rebinned=any(pair.rebinned for pair in target))


def _answers(study: Study, done: Sequence[DoneRun], target: Sequence[DonePair]) -> Answers:
    """Nothing where answers are drawn: those differ by chance."""
    if study.workload.sampling.temperature != 0:
        return Answers()
    single, split = (
        next((one for one in done if (one.run.phase, one.run.series) == where), None)
        for where in (("baseline", ALONE), ("function", "function"))
    )
    alone = None if single is None or split is None else (single, split)
    return answers_of(target, pairs_in(done, "baseline", "A/A"), alone)


def second_start(pairs: Sequence[DonePair]) -> tuple[Pair, ...]:
    """The split at one start against the split at the next, each start's first run.

    Starts saw different requests. How much harder those of one are is what the single arm took for
    the same ones, and is divided out; so a single arm that differs by start shows here too.
    """
    first: dict[str, DonePair] = {}
    for pair in pairs:
        first.setdefault(pair.b.start, pair)
    starts = list(first.values())
    found = []
    for earlier, later in zip(starts[::2], starts[1::2], strict=False):
        a, b = earlier.b.figures, _as_if_on(later, earlier)
        if a is not None and b is not None:
            found.append(Pair(a, b, later.position))
    return tuple(found)


def _as_if_on(pair: DonePair, other: DonePair) -> RunFigures | None:
    """B of ``pair`` had it had the requests of ``other``; None where a time is infinite."""
    b, single, there = pair.b.figures, pair.a.figures, other.a.figures
    if b is None or single is None or there is None:
        return None
    times = (b.tail_itl_s, b.ttft_s, single.tail_itl_s, single.ttft_s)
    if inf in (*times, there.tail_itl_s, there.ttft_s):
        return None
    return replace(
        b,
        tail_itl_s=b.tail_itl_s * there.tail_itl_s / single.tail_itl_s,
        ttft_s=b.ttft_s * there.ttft_s / single.ttft_s,
    )


def _checks(plan: Plan, folder: StudyFolder, target: Sequence[DonePair]) -> Checks:
    note = folder.read_json("preflight.json")
    passed = None if note is None else bool(note["passed"]) and function_works(plan, folder)
    runs = [run for pair in target for run in (pair.a, pair.b)]
    told = [pair.b.handoffs is not None for pair in target]
    return Checks(
        preflight=passed,
        # Another plan's folder is not read at all.
        plan_unchanged=True,
        captured=_captured(target),
        environment_unchanged=_unchanged(runs),
        retries_disclosed=all(told) if told and any(told) else None,
    )


def _captured(target: Sequence[DonePair]) -> bool | None:
    """Whether both arms told their version, and the connector is known."""
    if not target:
        return None
    a, b = target[0].a.environment, target[0].b.environment
    connector = any(name.endswith(".connector") and value for name, value in b.items())
    return "arm.software.version" in a and "arm.software.version" in b and connector


def _unchanged(runs: Sequence[DoneRun]) -> bool | None:
    """Whether each arm was the same in all its runs."""
    seen: dict[str, Mapping[str, str]] = {}
    for run in runs:
        lasting = {k: v for k, v in run.environment.items() if k not in _PER_START}
        if seen.setdefault(run.run.arm, lasting) != lasting:
            return False
    return True if runs else None


def _best_row(done: Sequence[DoneRun], plan: Plan, family: str) -> tuple[DonePair, ...]:
    """The row of ``family`` with the least tail ITL; empty where none was measured."""
    rows = [pairs_in(done, "rows", arm.label) for arm in plan.of_family(family)]
    return min((row for row in rows if row), key=_tail_itl_s, default=())


def _tail_itl_s(pairs: Sequence[DonePair]) -> float:
    tails = [pair.b.figures.tail_itl_s for pair in pairs if pair.b.figures is not None]
    return inf if inf in tails else mean(tails)


def _crossed(row: Sequence[DonePair], target: Sequence[DonePair]) -> tuple[Pair, ...]:
    """The row against the split, on the shards that both saw."""
    split = {pair.shard: pair for pair in target}
    both = [(pair, split[pair.shard]) for pair in row if pair.shard in split]
    return tuple(
        Pair(mine.b.figures, other.b.figures, other.position)
        for mine, other in both
        if mine.b.figures is not None and other.b.figures is not None
    )


def _short(study: Study, done: Sequence[DoneRun], target: Sequence[DonePair]) -> tuple[Pair, ...]:
    """The axis of prompt lengths at its shortest, or the target where that is as short."""
    bands = study.workload.corpus.prompt_tokens
    if not bands:
        return ()
    shortest = min(bands, key=lambda name: bands[name])
    of_axis = as_evidence(pairs_in(done, PROMPT_LEN, f"{PROMPT_LEN}={shortest}"))
    return of_axis or (as_evidence(target) if study.target.prompt == shortest else ())


def _hard(study: Study, done: Sequence[DoneRun]) -> tuple[Pair, ...]:
    """The highest concurrency, where the target's prompts are the longest ones."""
    bands = study.workload.corpus.prompt_tokens
    if bands and bands.get(study.target.prompt) != max(bands.values()):
        return ()
    return _highest_concurrency(study, done)


def _closed_loop(study: Study, done: Sequence[DoneRun]) -> tuple[Pair, ...]:
    """At equal concurrency, beside a target at equal rate."""
    if target_cell(study).concurrency is not None:
        return ()
    return _highest_concurrency(study, done)


def _highest_concurrency(study: Study, done: Sequence[DoneRun]) -> tuple[Pair, ...]:
    axis = next((axis for axis in study.axes if axis.name == CONCURRENCY), None)
    if axis is None:
        return ()
    highest = max(int(value) for value in axis.values)
    return as_evidence(pairs_in(done, CONCURRENCY, f"{CONCURRENCY}={highest}"))


def _block_tokens(plan: Plan) -> int:
    topology = plan.split.topology
    return _BLOCK_TOKENS if topology is None else topology.model.block_size


def _own_engine(plan: Plan) -> bool:
    topology = plan.split.topology
    return topology is not None and all(group.engine != VLLM for group in topology.workers)
