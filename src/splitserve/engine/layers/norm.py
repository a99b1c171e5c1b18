"""Root-mean-square normalisation."""

import math
from typing import Final

import torch
from torch import Tensor

_FEW_ROWS: Final = 32
"""Up to here a call costs more than what it does to the rows."""


class RMSNorm:
    """``x / sqrt(mean(x^2) + eps) * weight``, computed in float32 and rounded once.

    PyTorch's own rms_norm makes eight passes over memory on a CPU.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        """``weight [..., n]`` broadcasts over the rows' leading dimensions."""
        size = weight.shape[-1]
        self._eps = eps
        self._few_rows = _FEW_ROWS if weight.dim() == 1 else 0
        self._signs = torch.tensor([[1.0], [-1.0]], dtype=weight.dtype)
        self._pair = torch.stack((weight, weight), -2)
        self._weight = weight.float() * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * eps))

    def __call__(self, x: Tensor) -> Tensor:
        """``x [rows, ..., n]``; the result has its dtype."""
        return self._few(x) if len(x) <= self._few_rows else self._many(x)

    def _few(self, x: Tensor) -> Tensor:
        # The mean of x and -x together is 0, so that their layer norm is what we want: two calls.
        both = x.unsqueeze(-2) * self._signs
        return torch.layer_norm(both, both.shape[-2:], self._pair, None, self._eps).select(-2, 0)

    def _many(self, x: Tensor) -> Tensor:
        # With n numbers to a row: x / sqrt(|x|^2 + n eps) * sqrt(n) weight. Five passes.
        wide = x.float()
        norm = torch.linalg.vector_norm(wide, 2, -1, True).hypot_(self._floor)
        return wide.div(norm).mul_(self._weight).to(x.dtype)
