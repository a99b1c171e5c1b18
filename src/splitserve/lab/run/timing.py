"""When the requests of a run are due: warm-up, then the measured window, without a pause."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from splitserve.errors import ConfigError
from splitserve.lab.load.arrivals import gamma, poisson, ramp, replayed
from splitserve.lab.load.request import LoadRequest
from splitserve.lab.load.schedule import Due, after_warmup
from splitserve.lab.plan.phases import Run, needs_warmup
from splitserve.lab.plan.study import Study
from splitserve.lab.run.prompts import Source, seed_of

Talks = Sequence[tuple[LoadRequest, ...]]


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """``measured_s`` is when the measured window begins."""

    schedule: tuple[Due, ...]
    measured_s: float


@dataclass(frozen=True, slots=True)
class ClosedLoad:
    """Conversations of ``users``, warm-up first; ``warmup`` are ids of requests of warm-up."""

    talks: tuple[tuple[LoadRequest, ...], ...]
    users: int
    warmup: frozenset[str]


Load = OpenLoad | ClosedLoad


def requests_in(load: Load) -> int:
    """Warm-up included."""
    talks = [due.turns for due in load.schedule] if isinstance(load, OpenLoad) else load.talks
    return sum(map(len, talks))


def is_under_way(load: Load, ended: int, now_s: float) -> bool:
    """Whether more is due by now than has ended; users of a closed loop always have something."""
    if isinstance(load, ClosedLoad):
        return True
    return sum(len(due.turns) for due in load.schedule if due.at_s <= now_s) > ended


def load_of(run: Run, rate_per_s: float | None, source: Source) -> Load:
    """What ``run`` sends and when. ``rate_per_s`` is in requests, None in a closed loop."""
    study, warms_up = source.study, needs_warmup(run, source.study)
    measured = source.talks(run.cell, run.shard, run.requests, "measured")
    if rate_per_s is None:
        assert run.cell.concurrency is not None
        count = study.workload.corpus.warmup_requests if warms_up else 0
        warmup = source.talks(run.cell, run.shard, count, "warmup")
        ids = frozenset(turn.request_id for talk in warmup for turn in talk)
        return ClosedLoad((*warmup, *measured), run.cell.concurrency, ids)
    seed = seed_of(study.workload.arrivals.seed, run.cell, run.shard)
    due = _due(study, measured, rate_per_s, seed)
    if not warms_up:
        return OpenLoad(tuple(due), 0.0)
    corpus = study.workload.corpus
    warmup_s = max(study.metrics.warmup_min_s, corpus.warmup_requests / rate_per_s)
    offsets = poisson(_talk_rate(rate_per_s, measured), warmup_s, seed + 1)
    warmup = source.talks(run.cell, run.shard, len(offsets) * _turns(measured), "warmup")
    before = [Due(at_s, turns) for at_s, turns in zip(offsets, warmup, strict=False)]
    return OpenLoad(tuple(after_warmup(before, due, warmup_s)), warmup_s)


def _due(study: Study, talks: Talks, rate_per_s: float, seed: int) -> list[Due]:
    offsets = _offsets(study, talks, _talk_rate(rate_per_s, talks), seed)
    return [Due(at_s, turns) for at_s, turns in zip(offsets, talks, strict=False)]


def _offsets(study: Study, talks: Talks, rate: float, seed: int) -> list[float]:
    arrivals, count = study.workload.arrivals, len(talks)
    if arrivals.process == "trace":
        return _of_trace(talks, rate, keep_ties=arrivals.spread_ties == "keep", seed=seed)
    if arrivals.process == "ramp":
        top = rate * arrivals.ramp_to
        return ramp(rate, top, 2 * count / (rate + top), seed)[:count]
    cv = arrivals.cv if arrivals.process == "gamma" else 1.0
    return _first(count, rate, lambda duration_s: gamma(rate, cv, duration_s, seed))


def _first(count: int, rate: float, drawn: Callable[[float], list[float]]) -> list[float]:
    """The first ``count`` arrivals of a series that is long enough: the same however long."""
    duration_s = 2 * count / rate
    while len(offsets := drawn(duration_s)) < count:
        duration_s *= 2
    return offsets[:count]


def _of_trace(talks: Talks, rate: float, *, keep_ties: bool, seed: int) -> list[float]:
    """The trace's own arrivals, stretched evenly until their rate is ``rate``."""
    stamps = [turns[0].offset_s for turns in talks]
    # A slice that goes past the file's end goes on at its start.
    for at, (earlier, later) in enumerate(pairwise(list(stamps)), start=1):
        if later < earlier:
            shift = stamps[at - 1] - later
            stamps[at:] = [stamp + shift for stamp in stamps[at:]]
    span_s = stamps[-1] - stamps[0]
    if span_s <= 0:
        raise ConfigError("workload.arrivals: all requests of this slice have one stamp")
    steps = sorted({round(b - a, 9) for a, b in pairwise(stamps)} - {0.0})
    tick_s = 0.0 if keep_ties else steps[0]
    factor = (len(stamps) - 1) / span_s / rate
    return replayed(stamps, factor=factor, tick_s=tick_s, seed=seed)


def _talk_rate(rate_per_s: float, talks: Talks) -> float:
    return rate_per_s / _turns(talks)


def _turns(talks: Talks) -> int:
    """Requests of a conversation, on average."""
    return max(1, round(sum(map(len, talks)) / len(talks)))
