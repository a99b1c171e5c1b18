"""Matrix products with a fixed weight, and what can be done to their result on the way out.

A oneDNN weight is laid out once for the processor's matrix units; with PyTorch's own layout each
call would do that again, which doubles the time of a decode step. The fused forms round once,
from float32, where separate operations would round after each.
"""

from typing import Any, Final, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

_ONEDNN: Final[Any] = torch.ops.mkldnn


class Linear(Protocol):
    """``y = x W^T + b`` with ``x [rows, in]``, ``W [out, in]``; ``other`` is shaped as ``y``."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def silu(self, x: Tensor) -> Tensor:
        """``silu(y)``."""
        ...

    def mul(self, x: Tensor, other: Tensor) -> Tensor:
        """``y * other``."""
        ...

    def add(self, x: Tensor, other: Tensor) -> Tensor:
        """``y + other``."""
        ...


class PackedLinear:
    """On oneDNN. Keeps its own copy of the weight: drop yours."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = _ONEDNN._reorder_linear_weight.default(weight)
        self._bias = bias
        self._unary = _ONEDNN._linear_pointwise.default
        self._binary = _ONEDNN._linear_pointwise.binary

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self._unary(x, self._weight, self._bias, "none", [], "")
        return y

    def silu(self, x: Tensor) -> Tensor:
        y: Tensor = self._unary(x, self._weight, self._bias, "swish", [], "")
        return y

    def mul(self, x: Tensor, other: Tensor) -> Tensor:
        y: Tensor = self._binary(x, other, self._weight, self._bias, "mul")
        return y

    def add(self, x: Tensor, other: Tensor) -> Tensor:
        y: Tensor = self._binary(x, other, self._weight, self._bias, "add")
        return y


class PlainLinear:
    """On PyTorch alone, for builds and processors without oneDNN."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)

    def silu(self, x: Tensor) -> Tensor:
        return F.silu(self(x), inplace=True)

    def mul(self, x: Tensor, other: Tensor) -> Tensor:
        return self(x).mul_(other)

    def add(self, x: Tensor, other: Tensor) -> Tensor:
        return self(x).add_(other)


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The fastest form this machine has for the weight's dtype."""
    if _can_pack(weight.dtype):
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


def _can_pack(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return dtype != torch.bfloat16 or bool(_ONEDNN._is_mkldnn_bf16_supported())
