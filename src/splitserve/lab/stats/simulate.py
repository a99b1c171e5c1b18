"""Studies made up from a seed, to learn how often the inference is right. Vectorised.

A request's log time is: a pair effect that both arms share, a run effect that they do not, a drift
over the order of runs, and a first-order autoregressive series along the run (a queue remembers),
part of which both arms share because they see the same requests. Failures come in bursts: a run's
rate is drawn anew. With ratios 1 and equal error rates the arms are the same: a study is then A/A
all through.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from splitserve.lab.stats.design import Slot, interleaved
from splitserve.lab.stats.quantile import rank

Numbers = NDArray[np.float64]
BATCH = 25
"""Studies at a time: about 20 MB of requests."""


@dataclass(frozen=True, slots=True)
class StudyModel:
    """How requests are made. Times are medians in seconds, spreads are of logarithms.

    ``tail_itl_ratio``, ``ttft_ratio``: B/A, the true effects; ``error_a``, ``error_b``: shares;
    ``burst``: 0 for errors at random, 1 for runs whose error rate varies as much as its mean;
    ``correlation`` of neighbours in a run; ``shared``: the part of requests' variance that the arms
    of a pair have in common; ``drift``: log change from the study's first run to its last.
    """

    pairs: int = 8
    aa_pairs: int = 4
    requests: int = 600
    quantile: float = 0.95
    tail_itl_s: float = 0.040
    ttft_s: float = 0.8
    tail_itl_ratio: float = 1.0
    ttft_ratio: float = 1.0
    spread: float = 0.35
    correlation: float = 0.8
    shared: float = 0.7
    pair_sd: float = 0.10
    run_sd: float = 0.05
    drift: float = 0.10
    error_a: float = 0.0005
    error_b: float = 0.0005
    burst: float = 1.0
    ttft_limit_s: float = 2.0
    tail_itl_limit_s: float = 0.060


@dataclass(frozen=True, slots=True)
class Series:
    """Figures of runs, each an array [studies, pairs, arm]; arm 0 is A (or the first), 1 is B.

    ``tail_itl_s`` and ``ttft_s`` are the model's quantile over requests, infinite where failures
    reach it; ``good`` and ``errors`` count requests.
    """

    tail_itl_s: Numbers
    ttft_s: Numbers
    good: NDArray[np.int64]
    errors: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Simulated:
    """``control`` holds A/A pairs, ``target`` A/B pairs; ``positions`` [pairs]: when each ran."""

    control: Series
    target: Series
    positions: tuple[float, ...]


def simulate(model: StudyModel, studies: int, seed: int) -> Simulated:
    """``studies`` independent studies; the same from the same seed."""
    rng = np.random.default_rng(seed)
    order = interleaved(model.pairs, seed)
    batches = [min(BATCH, studies - done) for done in range(0, studies, BATCH)]
    control, target = [], []
    for size in batches:
        control.append(_series(rng, model, size, interleaved(model.aa_pairs, seed + 1), same=True))
        target.append(_series(rng, model, size, order, same=False))
    positions = tuple(sum(s.position for s in order if s.pair == j) / 2 for j in range(model.pairs))
    return Simulated(_joined(control), _joined(target), positions)


def _series(
    rng: np.random.Generator,
    model: StudyModel,
    studies: int,
    order: tuple[Slot, ...],
    *,
    same: bool,
) -> Series:
    pairs = len(order) // 2
    level = _run_levels(rng, model, studies, order)
    requests = _requests(rng, model, (studies, pairs))
    effect = np.log([[1.0, 1.0], [1.0, 1.0]]) if same else _effects(model)
    medians = np.log([model.tail_itl_s, model.ttft_s])
    # Axes: request, study, pair, arm, metric.
    times = np.exp(requests + level + effect + medians)
    failed = _failures(rng, model, (studies, pairs), same=same)
    good = (times[..., 0] <= model.tail_itl_limit_s) & (times[..., 1] <= model.ttft_limit_s)
    times[failed] = np.inf
    place = rank(model.requests, model.quantile) - 1
    tops = np.partition(times, place, axis=0)[place]
    return Series(tops[..., 0], tops[..., 1], (good & ~failed).sum(axis=0), failed.sum(axis=0))


def _run_levels(
    rng: np.random.Generator, model: StudyModel, studies: int, order: tuple[Slot, ...]
) -> Numbers:
    """[studies, pairs, arm, metric]: what all requests of a run share."""
    pairs = len(order) // 2
    when = np.zeros((pairs, 2, 1))
    for slot in order:
        when[slot.pair, int(slot.arm == "B"), 0] = slot.position / (
            2 * (model.pairs + model.aa_pairs) - 1
        )
    pair = rng.normal(0, model.pair_sd, (studies, pairs, 1, 2))
    run = rng.normal(0, model.run_sd, (studies, pairs, 2, 2))
    return pair + run + model.drift * when


def _requests(rng: np.random.Generator, model: StudyModel, shape: tuple[int, int]) -> Numbers:
    """[requests, studies, pairs, arm, metric]: stationary, of variance spread squared."""
    studies, pairs = shape
    common = rng.standard_normal((model.requests, studies, pairs, 1, 2))
    noise = rng.standard_normal((model.requests, studies, pairs, 2, 2))
    noise *= np.sqrt(1 - model.shared)
    noise += np.sqrt(model.shared) * common
    fresh = np.sqrt(1 - model.correlation**2)
    for t in range(1, model.requests):
        noise[t] = model.correlation * noise[t - 1] + fresh * noise[t]
    noise *= model.spread
    return noise


def _failures(
    rng: np.random.Generator, model: StudyModel, shape: tuple[int, int], *, same: bool
) -> NDArray[np.bool_]:
    """[requests, studies, pairs, arm]."""
    rates = np.array([model.error_a, model.error_a if same else model.error_b])
    each = np.broadcast_to(rates, (*shape, 2))
    if model.burst > 0:
        each = each * rng.gamma(1 / model.burst, model.burst, each.shape)
    return np.asarray(rng.random((model.requests, *each.shape)) < each)


def _effects(model: StudyModel) -> Numbers:
    """[arm, metric]."""
    return np.log([[1.0, 1.0], [model.tail_itl_ratio, model.ttft_ratio]])


def _joined(parts: list[Series]) -> Series:
    return Series(
        np.concatenate([p.tail_itl_s for p in parts]),
        np.concatenate([p.ttft_s for p in parts]),
        np.concatenate([p.good for p in parts]),
        np.concatenate([p.errors for p in parts]),
    )
