"""Engines by name and device. A runner is imported by the process that uses it and by no other."""

from typing import Final, Protocol

from splitserve.engine.api import Engine
from splitserve.engine.config import EngineConfig, SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.device import parse_device
from splitserve.errors import ConfigError
from splitserve.loading import load

RUNNERS: Final = {
    "native": {
        "cpu": "splitserve.engine.native:NativeRunner",
        "cuda": "splitserve.engine.cuda.runner:CudaRunner",
    },
    "fake": {"cpu": "splitserve.engine.fake:FakeRunner"},
}
"""Factories, by kind of device: called with the engine's configuration they give a Runner."""


class RunnerConfig(Protocol):
    """What a runner is made from: EngineConfig for ``native``, FakeConfig for ``fake``."""

    @property
    def scheduler(self) -> SchedulerConfig: ...


def runner_target(name: str, device: str) -> str:
    """The entry of RUNNERS, to be loaded. Raises ConfigError where there is none."""
    if name not in RUNNERS:
        raise ConfigError(f"engine {name!r} is unknown; there are {', '.join(sorted(RUNNERS))}")
    targets = RUNNERS[name]
    kind = parse_device(device).kind
    if kind not in targets:
        raise ConfigError(
            f"engine {name!r} does not run on {kind}; its device is {', '.join(targets)}"
        )
    return targets[kind]


def create_engine(name: str, config: RunnerConfig) -> Engine:
    """Loads the model and returns an engine over it.

    Raises ConfigError for an unknown name or device or impossible limits, and what the runner
    raises.
    """
    device = config.device if isinstance(config, EngineConfig) else "cpu"
    runner = load(runner_target(name, device))(config)
    try:
        return EngineCore(runner, config.scheduler)
    except ConfigError:
        runner.close()
        raise
