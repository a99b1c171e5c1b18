"""Weights from a GGUF file, whatever their block type: computed back to numbers when read."""

import math
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from torch import Tensor

from splitserve.engine.models.weights import Shape, check_shape
from splitserve.errors import ConfigError
from splitserve.modelstore.gguf_header import TensorInfo, read_header

_NAMES: Final = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_AT_ONCE: Final = 1 << 17
"""Numbers; few enough that the intermediate arrays stay in the processor's cache."""


class GGUFWeights:
    """Reads tensor by tensor. ``head_dim`` undoes the order that converters give rotary heads."""

    def __init__(self, path: Path, head_dim: int) -> None:
        header = read_header(path)
        self._path = path
        self._tensors = header.tensors
        # Only under this name do converters pair neighbouring dimensions of a rotary head;
        # Hugging Face pairs a dimension with the one half a head further.
        self._paired = header.text("general.architecture") == "llama"
        self._head_dim = head_dim

    def read(self, name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
        stored = gguf_name(name)
        info = self._tensors.get(stored)
        if info is None:
            raise ConfigError(f"{self._path} holds no {stored}: get the file again")
        check_shape(stored, info.shape, shape)
        tensor = self._dequantized(info, dtype)
        if self._paired and (".attn_q." in stored or ".attn_k." in stored):
            return _unpaired(tensor, self._head_dim)
        return tensor

    def _dequantized(self, info: TensorInfo, dtype: torch.dtype) -> Tensor:
        try:
            kind = gguf.GGMLQuantizationType(info.ggml_type)
        except ValueError as error:
            raise ConfigError(f"{info.name} has unknown block type {info.ggml_type}") from error
        block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        count = math.prod(info.shape) // block_size
        # Copy on write, because torch warns of memory that it may not write into.
        blocks = np.memmap(
            self._path, dtype=np.uint8, mode="c", offset=info.offset, shape=(count, block_bytes)
        )
        out = torch.empty(count, block_size, dtype=dtype)
        step = _AT_ONCE // block_size
        for start in range(0, count, step):
            part = blocks[start : start + step]
            # One long row, because the package works through rows in Python.
            values = torch.from_numpy(dequantize(part.reshape(1, -1), kind))
            out[start : start + len(part)] = values.view(len(part), block_size)
        return out.view(info.shape)


def gguf_name(name: str) -> str:
    """``model.layers.0.mlp.up_proj.weight`` is ``blk.0.ffn_up.weight`` (llama.cpp's names)."""
    stem, _, ending = name.rpartition(".")
    if not stem.startswith("model.layers."):
        return f"{_NAMES[stem]}.{ending}"
    layer, _, part = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_NAMES[part]}.{ending}"


def _unpaired(tensor: Tensor, head_dim: int) -> Tensor:
    """Rows ``0 1 2 3 ..`` of each head become ``0 2 4 .. 1 3 5 ..``."""
    heads = tensor.view(-1, head_dim // 2, 2, *tensor.shape[1:])
    return heads.transpose(1, 2).reshape(tensor.shape)
