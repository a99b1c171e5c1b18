"""Devices by name, and how large an engine on each is where nothing else was asked for."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from splitserve.errors import ConfigError

Kind = Literal["cpu", "cuda"]

_CUDA: Final = re.compile(r"cuda(?::(\d{1,3}))?")


@dataclass(frozen=True, slots=True)
class Device:
    """``index`` numbers the GPUs that this process sees, from 0; it is 0 for the CPU."""

    kind: Kind
    index: int = 0

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.kind == "cuda" else "cpu"


@dataclass(frozen=True, slots=True)
class Sizes:
    """``kv_cache_memory_bytes`` None: what the device has free once everything else has its place.

    The other two are those of SchedulerConfig.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_memory_bytes: int | None


DEFAULTS: Final[dict[Kind, Sizes]] = {
    "cpu": Sizes(64, 512, 1 << 30),
    "cuda": Sizes(256, 8192, None),
}


def parse_device(text: str) -> Device:
    """``cpu``, ``cuda`` (the first GPU) or ``cuda:N``. Raises ConfigError."""
    if text == "cpu":
        return Device("cpu")
    match = _CUDA.fullmatch(text)
    if match is None:
        raise ConfigError(f"device {text!r} is unknown; write cpu, cuda or cuda:N")
    return Device("cuda", int(match[1] or 0))


def sizes_on(
    kind: Kind,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    kv_cache_memory_bytes: int | None,
) -> Sizes:
    """What was asked for, and DEFAULTS of the device for what is None."""
    default = DEFAULTS[kind]
    return Sizes(
        default.max_num_seqs if max_num_seqs is None else max_num_seqs,
        default.max_num_batched_tokens
        if max_num_batched_tokens is None
        else max_num_batched_tokens,
        default.kv_cache_memory_bytes if kv_cache_memory_bytes is None else kv_cache_memory_bytes,
    )
