"""Programs of others that a topology needs."""

import shutil

from splitserve.errors import ConfigError
from splitserve.launch.topology import VLLM, Topology


def check_programs(topology: Topology) -> None:
    """Raises ConfigError for the first program that is not there, with what to do about it."""
    for number, group in enumerate(topology.workers):
        if group.engine != VLLM or group.attached:
            continue
        program = group.command_words[0]
        if shutil.which(program) is None:
            raise ConfigError(
                f"workers[{number}].command: there is no program {program!r}; install vLLM "
                "(pip install vllm) or name its program, as in /opt/vllm/bin/vllm"
            )
