"""The proof that one can go back to the single configuration, as a table of conditions."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from splitserve.lab.stats.paired import Paired
from splitserve.lab.verdict.judged import Judged
from splitserve.lab.verdict.outcome import Status

MEMORY_SLACK_MIB = 256


@dataclass(frozen=True, slots=True)
class RollbackProof:
    """What was seen while load ran and the return to single was ordered.

    ``return_s``: order to first good answer. ``in_flight_as_planned``: requests under way met the
    fate that the plan names. ``attainment``, ``ttft``, ``tail_itl``: single before against single
    after, same shard; ``margin`` is relative for the times, a share for attainment.
    """

    return_s: float
    limit_s: float
    in_flight_as_planned: bool
    config_lines_changed: int
    processes_left: int
    gpu_memory_above_mib: float
    ports_left_open: int
    kv_leases_left: int
    same_outputs: bool
    attainment: Paired
    ttft: Paired
    tail_itl: Paired
    margin: float = 0.10


def unmet(proof: RollbackProof, alpha: float = 0.05) -> tuple[Judged, ...]:
    """What the proof lacks, as sentences; empty when it is whole. That something is as before may
    be not shown, since few requests show little, or shown to be false."""
    lacking = [Judged(Status.FAILS, says) for says, kept in _FACTS if not kept(proof)]
    for name, effect, margin in (
        ("TTFT", proof.ttft, math.log1p(proof.margin)),
        ("tail ITL", proof.tail_itl, math.log1p(proof.margin)),
        ("attainment", proof.attainment, proof.margin),
    ):
        if _outside(effect, margin, alpha):
            lacking.append(Judged(Status.FAILS, f"{name} is not as before"))
        elif not _equal(effect, margin, alpha):
            lacking.append(Judged(Status.NOT_SHOWN, f"{name} is not shown to be as before"))
    return tuple(lacking)


_FACTS: tuple[tuple[str, Callable[[RollbackProof], bool]], ...] = (
    ("the return took too long", lambda p: p.return_s <= p.limit_s),
    ("requests in flight did not end as planned", lambda p: p.in_flight_as_planned),
    ("the configuration is not the one before", lambda p: p.config_lines_changed == 0),
    ("processes of the split are alive", lambda p: p.processes_left == 0),
    ("GPU memory was not given back", lambda p: p.gpu_memory_above_mib <= MEMORY_SLACK_MIB),
    ("ports of the split are open", lambda p: p.ports_left_open == 0),
    ("KV leases are left", lambda p: p.kv_leases_left == 0),
    ("greedy answers changed", lambda p: p.same_outputs),
)


def _outside(effect: Paired, margin: float, alpha: float) -> bool:
    """Whether the 1 - 2 alpha interval of equivalence tests lies beyond the margin as a whole."""
    interval = effect.interval(1 - 2 * alpha)
    return interval.low > margin or interval.high < -margin


def _equal(effect: Paired, margin: float, alpha: float) -> bool:
    if effect.by_order and set(effect.differences) == {0.0}:
        return True
    return effect.equivalence_p(margin) <= alpha
