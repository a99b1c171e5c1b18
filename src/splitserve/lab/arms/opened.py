"""The arm that a plan's arm becomes."""

from pathlib import Path

from splitserve.lab.arms.base import Arm
from splitserve.lab.arms.proxied import ProxiedArm
from splitserve.lab.arms.topology import TopologyArm, check_started
from splitserve.lab.arms.url import UrlArm
from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.study import PROXY


def opened(planned: PlannedArm, folder: Path, studies: Path, cache_reset: str) -> Arm:
    """``folder`` takes what it writes; files that the plan names are below ``studies``.

    Starts nothing. Raises ConfigError.
    """
    by_call = cache_reset == "endpoint"
    if planned.topology is not None:
        check_started(planned)
        arm = TopologyArm(planned, folder, by_call)
        return ProxiedArm(arm, folder) if planned.family == PROXY else arm
    key = planned.arm.api_key_file
    return UrlArm(planned, None if key is None else studies / key, by_call)
