"""Whether the functional runs of the split passed, from the journal."""

from splitserve.lab.plan.phases import runs_of
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import State, newest_entries


def function_works(plan: Plan, folder: StudyFolder) -> bool:
    """False too while they were not made: nothing of the split is timed before."""
    newest = newest_entries(folder.journal_path)
    accepted = {number for number, one in newest.items() if one.state is State.ACCEPTED}
    return all(run.number in accepted for run in runs_of(plan) if run.phase == "function")
