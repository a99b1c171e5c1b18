"""Rotary position embeddings: frequencies, how they are stretched, and the rotation itself.

Formulas: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071) and Llama 3.1's reference code; the
settings are those of a Hugging Face ``config.json``.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

RopeKind = Literal["default", "linear", "llama3", "yarn"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """``factor`` is how much longer than ``original_positions`` the context is made to be.

    The last two lines belong to ``llama3`` and to ``yarn``. ``attention_factor`` multiplies cosine
    and sine; None takes YaRN's own.
    """

    head_dim: int
    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0
    original_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True


def frequencies(config: RopeConfig) -> Tensor:
    """Radians per position, float32 ``[head_dim / 2]``, stretched as ``config`` says."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    plain = 1.0 / (config.theta**exponents)
    match config.kind:
        case "default":
            return plain
        case "linear":
            return plain / config.factor
        case "llama3":
            return _llama3(plain, config)
        case "yarn":
            return _yarn(plain, config)


def amplitude(config: RopeConfig) -> float:
    """What cosine and sine are multiplied by: 1 but for YaRN."""
    if config.kind != "yarn":
        return 1.0
    if config.attention_factor is not None:
        return config.attention_factor
    return 0.1 * math.log(config.factor) + 1.0 if config.factor > 1.0 else 1.0


def _llama3(plain: Tensor, config: RopeConfig) -> Tensor:
    turns = config.original_positions * plain / (2 * math.pi)
    low, high = config.low_freq_factor, config.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return plain * kept + plain / config.factor * (1.0 - kept)


def _yarn(plain: Tensor, config: RopeConfig) -> Tensor:
    def dimension(turns: float) -> float:
        """The dimension that turns ``turns`` times over the original context."""
        waves = math.log(config.original_positions / (turns * 2 * math.pi))
        return config.head_dim * waves / (2 * math.log(config.theta))

    low, high = dimension(config.beta_fast), dimension(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.head_dim - 1)
    width = high - low if high != low else 0.001
    stretched = ((torch.arange(len(plain)).float() - low) / width).clamp(0.0, 1.0)
    return plain * (1.0 - stretched) + plain / config.factor * stretched


class Rope:
    """Turns positions into the cosines and sines of one step."""

    def __init__(self, config: RopeConfig, dtype: torch.dtype) -> None:
        self._frequencies = frequencies(config).repeat(2)
        self._cos_scale = amplitude(config)
        # Negative for the first half: a head's halves change places and one changes its sign.
        self._sin_scale = torch.full((config.head_dim,), self._cos_scale)
        self._sin_scale[: config.head_dim // 2].neg_()
        self._dtype = dtype

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines ``[tokens, 1, head_dim]`` for ``positions [tokens]``."""
        angles = (positions.float()[:, None] * self._frequencies)[:, None]
        cos = angles.cos().mul_(self._cos_scale).to(self._dtype)
        return cos, angles.sin_().mul_(self._sin_scale).to(self._dtype)


def rotate_(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotates ``heads [tokens, heads, head_dim]`` in place by what ``Rope.at`` gave."""
    swapped = heads.roll(heads.shape[-1] // 2, -1)
    heads.mul_(cos).addcmul_(swapped, sin)
