"""Gives each worker its device: the CPU, or a GPU of its own. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count

from splitserve.errors import ConfigError
from splitserve.launch.topology import WorkerGroup

_ROUNDING = 1e-9
"""Shares are decimal fractions, which do not add up exactly."""


def share_devices(groups: Sequence[WorkerGroup], gpus: int | None) -> list[str]:
    """Each worker's device, in the groups' order: ``cpu``, ``cuda:N`` or, for a worker that is
    spread over several, ``cuda:N,M``.

    Groups without ``devices`` of their own take the lowest numbers that no other group names.
    ``gpus`` is how many there are, None when that is not known. Raises ConfigError for a GPU that
    is not there, and for one whose workers together ask for more than all of its memory.
    """
    named = {number for group in groups for number in group.devices}
    free = (number for number in count() if number not in named)
    given = [(group, list(_numbers(group, free))) for group in groups]
    _check_present([number for _, numbers in given for number in numbers], gpus)
    _check_shared(given)
    return [name for group, numbers in given for name in _names(group, numbers)]


def gpu_numbers(devices: Sequence[str]) -> tuple[int, ...]:
    """Those of all of share_devices's names, each once, in order."""
    return tuple(
        sorted(
            {
                int(number)
                for device in devices
                if device != "cpu"
                for number in device.removeprefix("cuda:").split(",")
            }
        )
    )


def _names(group: WorkerGroup, numbers: Sequence[int]) -> list[str]:
    if group.device != "cuda":
        return ["cpu"] * group.count
    each = group.tensor_parallel_size
    parts = [numbers[worker * each : (worker + 1) * each] for worker in range(group.count)]
    return [f"cuda:{','.join(map(str, part))}" for part in parts]


def _numbers(group: WorkerGroup, free: Iterator[int]) -> Iterator[int]:
    """As many GPUs as the group's workers take; none on the CPU."""
    if group.device == "cuda":
        count = group.count * group.tensor_parallel_size
        yield from group.devices or (next(free) for _ in range(count))


def _check_present(numbers: Sequence[int], gpus: int | None) -> None:
    missing = sorted({number for number in numbers if gpus is not None and number >= gpus})
    if missing:
        raise ConfigError(
            f"workers: there is no GPU {', '.join(map(str, missing))}, this machine has {gpus}; "
            "each worker takes one of its own unless `devices` in a topology says otherwise"
        )


def _check_shared(given: Sequence[tuple[WorkerGroup, Sequence[int]]]) -> None:
    """Workers with a pool of a named size count with that only, which their start checks."""
    tenants: defaultdict[int, list[WorkerGroup]] = defaultdict(list)
    for group, numbers in given:
        for number in numbers:
            tenants[number].append(group)
    for number, groups in tenants.items():
        asked = sum(
            group.gpu_memory_utilization for group in groups if group.kv_cache_memory_bytes is None
        )
        if len(groups) > 1 and asked > 1 + _ROUNDING:
            raise ConfigError(
                f"workers: {len(groups)} share GPU {number} and ask for {asked:.3g} of its memory; "
                "lower gpu_memory_utilization or set kv_cache_memory_bytes"
            )
