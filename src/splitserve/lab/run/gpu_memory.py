"""GPU memory in use, as the driver's own tool tells it."""

import asyncio
import shutil
from typing import Final

from splitserve.lab.plan.arms import PlannedArm

_ASK: Final = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")


def uses_gpus(arm: PlannedArm) -> bool:
    return arm.resources.gpus > 0


async def gpu_memory_mib() -> float | None:
    """MiB of all GPUs of this machine together; None where nothing tells."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    process = await asyncio.create_subprocess_exec(
        program, *_ASK, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    said, _ = await process.communicate()
    values = said.decode().split()
    if process.returncode != 0 or not all(value.isdigit() for value in values):
        return None
    return float(sum(map(int, values)))
