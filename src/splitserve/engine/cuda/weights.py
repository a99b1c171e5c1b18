"""Made-up weights that are made on the GPU: seven billion of them in half a second."""

import zlib

import torch
from torch import Tensor

from splitserve.engine.models.weights import Shape


class CudaDummyWeights:
    """Random weights that depend on ``seed`` and the tensor's name only; for measuring speed.

    The same on every GPU of one kind, but not those of ``DummyWeights``, whose generator is the
    CPU's.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed = seed
        self._device = device

    def read(self, name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape, dtype=dtype, device=self._device)
        generator = torch.Generator(self._device)
        generator.manual_seed(zlib.crc32(f"{self._seed} {name}".encode()))
        made = torch.empty(shape, dtype=dtype, device=self._device)
        return made.normal_(0.0, 0.02, generator=generator)
