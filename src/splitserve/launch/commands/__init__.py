"""How each engine's process is started: one file each, found by the topology's ``engine``.

An entry is a function ``WorkerSlot -> ProcessSpec``: it chooses address, command line and
environment.
"""

from typing import Final

COMMANDS: Final = {
    "native": "splitserve.launch.commands.native:worker_process",
    "fake": "splitserve.launch.commands.native:fake_worker_process",
    "vllm": "splitserve.launch.commands.vllm:worker_process",
}
