"""A progress that remembers what it was told."""

from collections.abc import Callable


class RecordedProgress:
    """``stages`` in order; ``advanced`` bytes per stage; ``on_stage`` is called with each name."""

    def __init__(self, on_stage: Callable[[str], None] = lambda name: None) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.advanced: dict[str, int] = {}
        self.finished = False
        self._on_stage = on_stage

    def stage(self, name: str, total_bytes: int | None) -> None:
        self.stages.append((name, total_bytes))
        self.advanced[name] = 0
        self._on_stage(name)

    def advance(self, nbytes: int) -> None:
        self.advanced[self.stages[-1][0]] += nbytes

    def done(self) -> None:
        self.finished = True

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.stages]
