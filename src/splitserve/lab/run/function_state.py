"""Whether the functional runs of the split passed, from the journal."""

from splitserve.lab.plan.phases import runs_of
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import State, read_entries


def function_works(plan: Plan, folder: StudyFolder) -> bool:
    """False too while they were not made: nothing of the split is timed before."""
    accepted = {
        one.number: one.state is State.ACCEPTED for one in read_entries(folder.journal_path)
    }
    wanted = [run.number for run in runs_of(plan) if run.phase == "function"]
    return all(accepted.get(number, False) for number in wanted)
