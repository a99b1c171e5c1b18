"""The arms of a study, one of those that the lab starts at a time: they share the hardware."""

from collections.abc import Callable, Iterable, Mapping

from splitserve.errors import ConfigError
from splitserve.lab.arms.base import Arm, Described
from splitserve.lab.plan.arms import PlannedArm
from splitserve.lab.plan.config_diff import Config, compare, confounders
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.study import CHUNKED
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.gpu_memory import gpu_memory_mib, uses_gpus

Open = Callable[[PlannedArm], Arm]


class Fleet:
    """Brings arms up and down as runs need them. Use as ``async with``, which stops all.

    ``gpu_memory_before_mib`` is what was used before the last start; None where nothing tells.
    """

    def __init__(self, plan: Plan, folder: StudyFolder, opened: Open) -> None:
        self._plan = plan
        self._folder = folder
        self._open = opened
        self._planned = by_label(plan)
        self._arms: dict[str, Arm] = {}
        self._up: str | None = None
        self._described: dict[str, Described] = {}
        self.gpu_memory_before_mib: float | None = None
        self.uses_gpus = any(map(uses_gpus, self._planned.values()))

    async def __aenter__(self) -> "Fleet":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.take_down()

    async def check_running(self) -> None:
        """Raises UnavailableError or ConfigError for an arm that should run already and does not,
        before time is spent on anything else."""
        for label, planned in self._planned.items():
            if not planned.started:
                arm = self._arms.setdefault(label, self._open(planned))
                await arm.start()

    async def bring_up(self, label: str, *, anew: bool = False) -> tuple[Arm, Described, bool]:
        """The arm, running; what it is; whether it was just started. ``anew`` starts it again.

        Raises StartFailed, UnavailableError, and ConfigError for an arm that is not what the plan
        says, or differs from the baseline in more than the split.
        """
        if self._up == label and not anew:
            return self._arms[label], self._described[label], False
        await self.take_down()
        planned = self._planned[label]
        arm = self._arms.setdefault(label, self._open(planned))
        if self.uses_gpus:
            self.gpu_memory_before_mib = await gpu_memory_mib()
        self._up = label
        await arm.start()
        described = await arm.describe()
        self._described[label] = described
        self._check_alike(planned, described)
        self._folder.write_json(f"arms/{label}.json", {"config": described.config})
        return arm, described, True

    def are_started(self, labels: Iterable[str]) -> bool:
        """Whether the lab starts all of these arms itself."""
        return all(self._planned[label].started for label in labels)

    async def take_down(self) -> None:
        """Stops what runs, if anything does."""
        label, self._up = self._up, None
        if label is not None:
            await self._arms[label].stop()

    def _check_alike(self, planned: PlannedArm, described: Described) -> None:
        base = self._plan.baseline
        if base.label not in self._described or planned.label == base.label:
            return
        # What is said in the plan of one can only be compared with the same of the other.
        whole = planned.started == base.started and planned.family != CHUNKED
        other = self._described[base.label]
        left, right = (other.config, described.config) if whole else (other.live, described.live)
        found = confounders(compare(*_known_to_both(left, right)))
        if found:
            one = found[0]
            raise ConfigError(
                f"arm {planned.label}: {one.key} is {one.right!r}, and {one.left!r} in "
                f"{base.label}, which is no part of the split; make it the same"
            )


def by_label(plan: Plan) -> Mapping[str, PlannedArm]:
    """All arms of the plan, with the pd arm's other ratios and layouts."""
    return {arm.label: arm for arm in (*plan.arms, *plan.variants.values())}


def _known_to_both(left: Config, right: Config) -> tuple[Config, Config]:
    """Without what only one of them says: a server that tells less is no other server."""
    both = {key for key in left.keys() & right.keys() if None not in (left[key], right[key])}
    return {key: left[key] for key in both}, {key: right[key] for key in both}
