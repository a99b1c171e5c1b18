"""Where a decoder's weights come from. Names are those of Hugging Face's checkpoints."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from splitserve.errors import ConfigError

Shape = tuple[int, ...]


class Weights(Protocol):
    def read(self, name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        """A tensor for the caller to keep. Raises ConfigError when it is missing or misshapen."""
        ...


class SafetensorsWeights:
    """Tensors of one checkpoint, in one file or several. Reads each when asked."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = {name: file for file in files for name in _names(file)}

    def read(self, name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        file = self._files.get(name)
        if file is None:
            raise ConfigError(f"the checkpoint holds no {name}: get the model again")
        # Opened for each tensor: pages of a mapped file count as this process's memory.
        with safe_open(file, framework="pt") as tensors:
            tensor: Tensor = tensors.get_tensor(name)
        check_shape(name, tuple(tensor.shape), shape)
        return tensor.to(dtype, copy=True)


class DummyWeights:
    """Random weights that depend on ``seed`` and the tensor's name only; for measuring speed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def read(self, name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=dtype)
        # One number of 32 bits, because the CPU's generator ignores what lies above them.
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        return torch.empty(shape).normal_(0.0, 0.02, generator=generator).to(dtype)


def check_shape(name: str, found: Shape, expected: Shape) -> None:
    """Raises ConfigError when a checkpoint does not fit its config.json."""
    if found != expected:
        raise ConfigError(f"{name} is {list(found)}, but config.json says {list(expected)}")


def _names(file: Path) -> list[str]:
    try:
        with safe_open(file, framework="pt") as tensors:
            return list(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"cannot read {file} ({error}): get the model again") from error
