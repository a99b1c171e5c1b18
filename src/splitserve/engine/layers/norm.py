"""Root-mean-square normalisation."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x [..., n]`` over its last dimension, computed in float32, times ``weight [n]``."""
    return torch.rms_norm(x, weight.shape, weight, eps)
