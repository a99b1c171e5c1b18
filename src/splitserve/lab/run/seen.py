"""What servers and machine said where a plan says nothing, by the names of ``plan.table``."""

from typing import Final

from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.accepted import accepted_runs
from splitserve.lab.run.folder import StudyFolder

_NAMES: Final = {
    "software.version": "arm.software.version",
    "software.commit": "arm.software.commit",
    "software.python": "software.python",
    "software.driver": "host.gpu_driver",
    "model.max_model_len": "arm.model.max_model_len",
    "hardware.cpu": "host.cpu",
}


def seen_in(plan: Plan, folder: StudyFolder) -> dict[str, str]:
    """From the first run that counts; empty before there is one."""
    first = next(accepted_runs(plan, folder), None)
    if first is None:
        return {}
    environment = first.environment
    found = {name: environment[key] for name, key in _NAMES.items() if key in environment}
    return {"model.model id": plan.study.model.name, **found}
