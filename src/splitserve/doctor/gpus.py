"""GPUs, as the driver's tool tells of them or, without it, torch in a process of its own."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from splitserve.doctor.findings import Gpu
from splitserve.doctor.programs import output_of
from splitserve.doctor.versions import first_version
from splitserve.launch.facts import gpu_count

_MIB: Final = 1 << 20
_SMI: Final = (
    "nvidia-smi",
    "--query-gpu=index,name,memory.total,memory.free",
    "--format=csv,noheader,nounits",
)
_ASK_TORCH: Final = """
import json, torch
print(json.dumps([
    [i, torch.cuda.get_device_name(i), *torch.cuda.mem_get_info(i)[::-1]]
    for i in range(torch.cuda.device_count())
]))
"""


def find_gpus(environ: Mapping[str, str], devices: Path) -> tuple[Gpu, ...]:
    """Those that processes started from here may see; ``devices`` is /dev."""
    said = output_of(_SMI, within_s=15)
    if said is not None:
        return visible(gpus_of_smi(said), environ.get("CUDA_VISIBLE_DEVICES"))
    if gpu_count(devices) is None or first_version(("torch",)) is None:
        return ()
    # torch itself heeds CUDA_VISIBLE_DEVICES.
    return gpus_of_torch(output_of((sys.executable, "-c", _ASK_TORCH), within_s=60) or "[]")


def gpus_of_smi(said: str) -> tuple[Gpu, ...]:
    """Lines that are not of the form asked for are left out; sizes it does not know are 0."""
    found = []
    for line in said.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and fields[0].isdigit():
            total, free = (int(field) * _MIB if field.isdigit() else 0 for field in fields[2:])
            found.append(Gpu(int(fields[0]), fields[1], total, free))
    return tuple(found)


def gpus_of_torch(said: str) -> tuple[Gpu, ...]:
    """None for what is not the list asked for."""
    try:
        rows = json.loads(said.strip().rpartition("\n")[2])
        return tuple(
            Gpu(int(index), str(name), int(total), int(free)) for index, name, total, free in rows
        )
    except (ValueError, TypeError):
        return ()


def visible(gpus: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """Those that a value of CUDA_VISIBLE_DEVICES names, in its order: as CUDA, up to the first
    number that is none. Names other than numbers are not looked at."""
    if setting is None:
        return tuple(gpus)
    by_index = {str(gpu.index): gpu for gpu in gpus}
    words = [word.strip() for word in setting.split(",")]
    if any(word.startswith(("GPU-", "MIG-")) for word in words):
        return tuple(gpus)
    named = []
    for word in words:
        if word not in by_index:
            break
        named.append(by_index[word])
    return tuple(named)
