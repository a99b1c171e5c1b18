"""One step's work in tensors: made by the runner, read by the model."""

from dataclasses import dataclass

from torch import Tensor

from splitserve.engine.layers.attention import Part


@dataclass(frozen=True, slots=True)
class Batch:
    """``tokens`` and ``positions`` are ``[tokens]``, in the order of ``parts``.

    ``slots [tokens * 2 * num_kv_heads]`` says where each token's keys, then values go among a
    layer's ``rows``. ``sampled`` are the tokens to score; None means all, in order. ``samples`` is
    how many that is.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    parts: tuple[Part, ...]
    sampled: Tensor | None
    samples: int
