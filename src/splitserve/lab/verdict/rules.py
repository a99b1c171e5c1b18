"""What the plan fixed before the first request."""

from dataclasses import dataclass, field
from enum import StrEnum


class Question(StrEnum):
    """What the study is asked."""

    TAIL_ITL = "tail_itl"
    TTFT = "ttft"
    BOTH = "both"
    THROUGHPUT = "throughput"


class Profile(StrEnum):
    """SMOKE is a demonstration: short windows, few pairs, never a recommendation to change."""

    FULL = "full"
    SMOKE = "smoke"


class Verification(StrEnum):
    """How the figures came about."""

    DESK = "desk"
    MEASURED = "measured"
    MIXED = "mixed"


class Resources(StrEnum):
    """Whether both arms hold the same GPUs."""

    SAME = "same_resources"
    ADDED = "added_capacity"


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits per request, and the share of intended requests that must keep both."""

    ttft_s: float
    tail_itl_s: float
    attainment: float = 0.99


@dataclass(frozen=True, slots=True)
class SmallestEffects:
    """The smallest effects of interest: ratios B/A below 1, ``attainment`` as a share."""

    tail_itl_ratio: float = 0.8
    ttft_ratio: float = 0.9
    throughput_ratio: float = 0.95
    attainment: float = 0.05


@dataclass(frozen=True, slots=True)
class Margins:
    """What may get worse, at most. Shares as fractions; an accepted ratio of None: SLO only.

    ``outputs_differ``: of greedy answers given one at a time. Under load near ties fall as the
    batch does, in one deployment too: ``outputs_differ_under_load`` is what may come on top of how
    often the single one differs from itself.
    """

    error_difference: float = 0.005
    error_share: float = 0.01
    handoff_p95_s: float = 0.150
    handoff_share_of_ttft: float = 0.3
    handoff_failures: float = 0.005
    accepted_ttft_ratio: float | None = 1.25
    accepted_tail_itl_ratio: float | None = 1.25
    outputs_differ: float = 0.02
    outputs_differ_under_load: float = 0.1


@dataclass(frozen=True, slots=True)
class Rules:
    """All of it. ``pairs`` and ``aa_pairs`` are how many valid ones the verdict needs."""

    slo: Slo
    question: Question = Question.TAIL_ITL
    profile: Profile = Profile.FULL
    verification: Verification = Verification.MEASURED
    resources: Resources = Resources.SAME
    effects: SmallestEffects = field(default_factory=SmallestEffects)
    margins: Margins = field(default_factory=Margins)
    pairs: int = 8
    aa_pairs: int = 2
    alpha: float = 0.05
