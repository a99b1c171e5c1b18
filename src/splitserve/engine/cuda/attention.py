"""Attention over the paged pool, by FlashInfer.

A wrapper's ``plan`` decides on the host how the device's processors share one step's work; all
layers then ``run`` by that plan. Plans are copied to the device from pinned memory that belongs to
the wrapper, so the next plan must wait until that copy is over (``CudaRunner`` sees to it).
"""

from typing import Final

import flashinfer
import torch
from torch import Tensor

from splitserve.engine.cuda.step import Ints, Pages, Step
from splitserve.engine.models.config import DecoderConfig
from splitserve.errors import ConfigError

WORKSPACE_BYTES: Final = 256 << 20
"""Partial results of sequences that several processors share."""

_HEAD_DIMS: Final = (64, 128, 256)


class Attention:
    """Tensors and shapes that all plans have in common.

    Raises ConfigError for a shape that there are no kernels for.
    """

    def __init__(
        self, config: DecoderConfig, dtype: torch.dtype, block_size: int, device: torch.device
    ) -> None:
        if config.head_dim not in _HEAD_DIMS:
            raise ConfigError(
                f"head_dim is {config.head_dim}: attention on a GPU has kernels for "
                f"{', '.join(map(str, _HEAD_DIMS))}"
            )
        self.workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self.shape = (config.num_heads, config.num_kv_heads, config.head_dim, block_size)
        self.dtype = dtype
        self.device = device


class StepAttention:
    """Any step: decodes by one wrapper, stretches of prompts by another."""

    def __init__(self, common: Attention) -> None:
        self._common = common
        self._singles = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            common.workspace, "HND", use_tensor_cores=True
        )
        self._spans = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
            common.workspace, "HND", backend=_prefill_backend(common.device)
        )
        self._split = 0

    def plan(self, step: Step, stage: "Stage") -> None:
        """``stage`` has the step's arrays in pinned memory."""
        common, self._split = self._common, step.singles
        if step.singles:
            self._singles.plan(
                *stage.pages(step.single_pages),
                *common.shape,
                q_data_type=common.dtype,
                kv_data_type=common.dtype,
            )
        if step.tokens > step.singles:
            self._spans.plan(
                stage.ints(step.spans),
                *stage.pages(step.span_pages),
                *common.shape,
                causal=True,
                q_data_type=common.dtype,
                kv_data_type=common.dtype,
            )

    def __call__(self, q: Tensor, layer: Tensor) -> Tensor:
        """``q [tokens, heads, head_dim]``, ``layer`` the pool's; the result is shaped as ``q``."""
        out = torch.empty_like(q)
        split = self._split
        if split:
            self._singles.run(q[:split], layer, out=out[:split])
        if split < len(q):
            self._spans.run(q[split:], layer, out=out[split:])
        return out


class GraphAttention:
    """Steps of ``batch`` decodes, with all that changes from step to step in fixed places."""

    def __init__(self, common: Attention, batch: int, indices: Tensor) -> None:
        """``indices`` is where the caller puts the block tables before each run."""
        self._common = common
        self._indices = indices
        self._wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            common.workspace,
            "HND",
            use_cuda_graph=True,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=torch.zeros(batch + 1, dtype=torch.int32, device=common.device),
            paged_kv_indices_buffer=indices,
            paged_kv_last_page_len_buffer=torch.ones(
                batch, dtype=torch.int32, device=common.device
            ),
        )

    def plan(self, indptr: Tensor, last: Tensor) -> None:
        """``indptr [batch + 1]``, ``last [batch]``, int32 in pinned memory."""
        common = self._common
        # The tables are in place: FlashInfer would wait for the device to copy them from the host.
        self._wrapper.plan(
            indptr,
            self._indices[:0],
            last,
            *common.shape,
            q_data_type=common.dtype,
            kv_data_type=common.dtype,
        )

    def __call__(self, q: Tensor, layer: Tensor) -> Tensor:
        out = torch.empty_like(q)
        self._wrapper.run(q, layer, out=out)
        return out


class Stage:
    """Pinned host memory from which copies to the device do not wait."""

    def __init__(self, capacity: int) -> None:
        """``capacity`` in int32 items, for one step."""
        self._memory = torch.empty(capacity, dtype=torch.int32, pin_memory=True)
        self._view = self._memory.numpy()
        self._used = 0

    def clear(self) -> None:
        """What was staged has been copied."""
        self._used = 0

    def ints(self, values: Ints) -> Tensor:
        """A copy of ``values`` with its shape, in pinned memory, until ``clear``."""
        end = self._used + values.size
        if end > len(self._view):
            return torch.from_numpy(values).pin_memory()
        self._view[self._used : end] = values.reshape(-1)
        staged = self._memory[self._used : end].view(values.shape)
        self._used = end
        return staged

    def pages(self, pages: Pages) -> tuple[Tensor, Tensor, Tensor]:
        return self.ints(pages.indptr), self.ints(pages.indices), self.ints(pages.last)


def _prefill_backend(device: torch.device) -> str:
    """FlashAttention 3 is for Hopper alone."""
    return "fa3" if torch.cuda.get_device_capability(device)[0] == 9 else "fa2"
