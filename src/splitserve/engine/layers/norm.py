"""Root-mean-square normalisation."""

import math

import torch
from torch import Tensor


class RMSNorm:
    """``x / sqrt(mean(x^2) + eps) * weight``, computed in float32 and rounded once.

    With ``n`` numbers to a row that is ``x / sqrt(|x|^2 + n eps) * sqrt(n) weight``, which takes
    half the passes over memory that PyTorch's own rms_norm takes on a CPU.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        """``weight [..., n]`` broadcasts over the rows' leading dimensions."""
        size = weight.shape[-1]
        self._weight = weight.float() * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * eps))

    def __call__(self, x: Tensor) -> Tensor:
        """``x [..., n]``; the result has its dtype."""
        wide = x.float()
        norm = torch.linalg.vector_norm(wide, 2, -1, True).hypot_(self._floor)
        return wide.div(norm).mul_(self._weight).to(x.dtype)
