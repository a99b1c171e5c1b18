"""The evidence with all that clauses and readings ask of it, computed once."""

from dataclasses import dataclass

from splitserve.lab.stats.control import Drift, NoiseFloor, drift, noise_floor
from splitserve.lab.verdict.comparison import (
    Comparison,
    Direction,
    Directions,
    compare,
    directions,
)
from splitserve.lab.verdict.evidence import Evidence, Pair
from splitserve.lab.verdict.improvement import (
    TAIL_ITL,
    TTFT,
    Improvement,
    improvement,
    latencies,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """``target`` and what follows from it are None without a valid pair in the target cell.

    ``floors`` and ``drifts`` by the quantity's name; empty where there are no pairs for them.
    """

    evidence: Evidence
    target: Comparison | None
    arrows: Directions | None
    improvement: Improvement | None
    floors: dict[str, NoiseFloor]
    drifts: dict[str, Drift]
    chunked: Directions | None
    chunked_split: Directions | None
    passthrough_split: Directions | None
    short: Directions | None
    hard: Directions | None
    closed_loop: Directions | None

    @property
    def closed_loop_only(self) -> bool | None:
        """A gain at equal concurrency that is none at equal rate; None where not measured."""
        if self.closed_loop is None or self.arrows is None:
            return None
        return bool(_gains(self.closed_loop) - _gains(self.arrows))


def gather(evidence: Evidence) -> Facts:
    """All facts of a study."""
    rules = evidence.rules
    target = compare(evidence.target, 1 - rules.alpha)
    control = compare(evidence.control, 1 - rules.alpha)

    def arrows(series: tuple[Pair, ...]) -> Directions | None:
        return directions(compare(series, 1 - rules.alpha), rules)

    return Facts(
        evidence=evidence,
        target=target,
        arrows=arrows(evidence.target),
        improvement=None if target is None else improvement(target, rules),
        floors={} if control is None else floors(control, evidence),
        drifts={} if target is None else _drifts(target),
        chunked=arrows(evidence.chunked),
        chunked_split=arrows(evidence.chunked_split),
        passthrough_split=arrows(evidence.passthrough_split),
        short=arrows(evidence.short),
        hard=arrows(evidence.hard),
        closed_loop=arrows(evidence.closed_loop),
    )


def floors(control: Comparison, evidence: Evidence) -> dict[str, NoiseFloor]:
    """The noise floor of every quantity that decides."""
    rules = evidence.rules
    found = {
        name: noise_floor(same, -least, 1 - rules.alpha)
        for name, (same, least) in latencies(control, rules).items()
    }
    share = noise_floor(control.attainment, rules.effects.attainment, 1 - rules.alpha)
    return {**found, "attainment": share}


def _drifts(target: Comparison) -> dict[str, Drift]:
    positions = [p.position for p in target.pairs]
    return {
        TAIL_ITL: drift(target.tail_itl, positions),
        TTFT: drift(target.ttft, positions),
        "attainment": drift(target.attainment, positions),
    }


def _gains(arrows: Directions) -> set[str]:
    named = {TAIL_ITL: arrows.tail_itl, TTFT: arrows.ttft}
    return {name for name, arrow in named.items() if arrow is Direction.DOWN}
