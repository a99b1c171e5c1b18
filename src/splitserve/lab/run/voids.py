"""What becomes of a pair whose runs do not all count: set aside, and said so in the journal."""

from collections.abc import Sequence
from typing import Final

import msgspec

from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import Journal, State, now_text
from splitserve.lab.run.units import Unit

ATTEMPTS: Final = 2
"""A pair that breaks a rule is repeated once."""

INTERRUPTED: Final = "the lab was stopped"


def is_done(unit: Unit, journal: Journal) -> bool:
    """Complete, given up, or left out: resuming does not come back to it."""
    lasts = [journal.last(number) for number in unit.numbers]
    states = {None if last is None else last.state for last in lasts}
    if states == {State.SKIPPED}:
        return True
    given_up = journal.invalid(unit.numbers) >= ATTEMPTS
    return states == {State.ACCEPTED} or given_up


def void_interrupted(units: Sequence[Unit], journal: Journal, folder: StudyFolder) -> None:
    """What a lab that died left half done is void as a whole."""
    for unit in units:
        if not is_done(unit, journal):
            void(unit, journal, folder, INTERRUPTED, broke=None)


def void(
    unit: Unit, journal: Journal, folder: StudyFolder, reason: str, *, broke: int | None
) -> None:
    """Sets all attempts of ``unit`` that are under way aside. ``broke``: the run that broke a rule,
    None when the lab was stopped."""
    for run in unit.runs:
        last = journal.last(run.number)
        if last is None or last.state in (State.VOID, State.SKIPPED):
            continue
        invalid = run.number == broke
        kept = folder.set_aside(run.number, last.attempt)
        journal.add(
            msgspec.structs.replace(
                last,
                state=State.VOID,
                at=now_text(),
                reason=reason if invalid or broke is None else f"its pair is void: {reason}",
                seconds=0.0,
                invalid=invalid,
                folder=kept,
            )
        )
