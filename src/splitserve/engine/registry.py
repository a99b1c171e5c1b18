"""Engines by name. A runner is imported by the process that uses it and by no other."""

from typing import Final, Protocol

from splitserve.engine.api import Engine
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.errors import ConfigError
from splitserve.loading import load

RUNNERS: Final = {
    "native": "splitserve.engine.native:NativeRunner",
    "fake": "splitserve.engine.fake:FakeRunner",
}
"""Factories: called with the engine's configuration they give a Runner."""


class RunnerConfig(Protocol):
    """What a runner is made from: EngineConfig for ``native``, FakeConfig for ``fake``."""

    @property
    def scheduler(self) -> SchedulerConfig: ...


def create_engine(name: str, config: RunnerConfig) -> Engine:
    """Loads the model and returns an engine over it.

    Raises ConfigError for an unknown name or impossible limits, and what the runner raises.
    """
    if name not in RUNNERS:
        raise ConfigError(f"engine {name!r} is unknown; there are {', '.join(sorted(RUNNERS))}")
    runner = load(RUNNERS[name])(config)
    try:
        return EngineCore(runner, config.scheduler)
    except ConfigError:
        runner.close()
        raise
