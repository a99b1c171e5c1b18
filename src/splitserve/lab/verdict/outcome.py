"""What a study can end in."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final


class Outcome(StrEnum):
    """The verdicts. ADOPT means "keep as a candidate": the feature is experimental."""

    ADOPT = "adopt"
    KEEP_SINGLE = "keep_single"
    TRY_CHUNKED = "try_chunked"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"


EXIT_CODES: Final[Mapping[Outcome, int]] = {
    Outcome.ADOPT: 0,
    Outcome.KEEP_SINGLE: 10,
    Outcome.TRY_CHUNKED: 11,
    Outcome.INCONCLUSIVE: 20,
    Outcome.INVALID: 30,
}

TOOL_ERROR_EXIT: Final = 40
"""For the command line: the lab itself failed and there is no verdict."""


class Status(Enum):
    """Of a clause. NOT_SHOWN: the data allow both; for ADOPT that is as bad as FAILS."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True, slots=True)
class Clause:
    """One condition of the decision with the sentences that prove it.

    ``lacking`` are those sentences of ``evidence`` for which it does not hold.
    """

    name: str
    status: Status
    evidence: tuple[str, ...]
    lacking: tuple[str, ...] = ()


class Consequence(Enum):
    """What a triggered reading does to the verdict."""

    INVALIDATES = "invalidates"
    CHUNKED = "chunked prefill suffices"
    KEEPS = "keeps the single configuration"
    BLOCKS = "blocks adoption"
    UNDECIDED = "leaves it undecided"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Heard:
    """A reading after the study. ``triggered`` is None where what it needs was not measured."""

    name: str
    triggered: bool | None
    says: str
    action: str
    consequence: Consequence


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a study.

    ``weak``: B improves the target cell but is not shown to meet its SLO. ``more_pairs``: how many
    further pairs would decide, where that is what is missing.
    """

    outcome: Outcome
    reason: str
    clauses: tuple[Clause, ...]
    readings: tuple[Heard, ...]
    weak: bool = False
    more_pairs: int | None = None

    @property
    def exit_code(self) -> int:
        """Of the process that prints it."""
        return EXIT_CODES[self.outcome]
