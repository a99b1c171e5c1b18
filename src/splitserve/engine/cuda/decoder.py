"""The decoder on a GPU: token records and the paged pool in, the stream and scores out.

Between the matrix products there are three kernels a layer: sum and norm, rotation and store, and
the gate. All sizes follow from the records, so the same code runs alone and inside a graph.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from splitserve.engine.api import KVSink
from splitserve.engine.cuda.kernels import Kernels
from splitserve.engine.layers.rope import amplitude, frequencies
from splitserve.engine.models.config import DecoderConfig, qkv_modules
from splitserve.engine.models.weights import Weights

Attend = Callable[[Tensor, Tensor], Tensor]
"""Queries ``[tokens, heads, head_dim]`` and a layer of the pool to what the tokens gather."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """``qkv`` gives queries, keys, values; ``gate_up`` the gate, then what it gates."""

    attn_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class CudaDecoder:
    """A model's weights on one device."""

    def __init__(
        self, config: DecoderConfig, weights: Weights, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Raises ConfigError when ``weights`` do not fit ``config``."""
        loader = _Loader(config, weights, dtype, device)
        self._config = config
        self._kernels = Kernels()
        self._embedding = loader.matrix("model.embed_tokens", config.vocab_size, config.hidden_size)
        self._layers = [loader.layer(index) for index in range(config.num_layers)]
        self._norm = loader.norm("model.norm")
        self._head = (
            self._embedding
            if config.tie_word_embeddings
            else loader.matrix("lm_head", config.vocab_size, config.hidden_size)
        )
        self._turns = _turns(config, device)

    def forward(
        self,
        records: Tensor,
        chosen: Tensor,
        pool: Sequence[Tensor],
        attend: Attend,
        sampled: Tensor | None,
        sink: KVSink | None = None,
        scores: Tensor | None = None,
    ) -> Tensor | None:
        """Stores the KV of all tokens and scores those of ``sampled``.

        ``records [tokens, 4]`` and ``chosen`` are what ``Kernels.embed`` takes. ``sampled`` are
        token numbers, int32; None means all. Returns ``[sampled, vocab_size]``, None when nothing
        is to be scored. ``sink`` is told after each layer's store. ``scores`` is where the result
        goes, if it is to lie in a fixed place.
        """
        config, run, eps = self._config, self._kernels, self._config.rms_norm_eps
        x, h = run.embed(records, chosen, self._embedding, self._layers[0].attn_norm, eps)
        last = len(self._layers) - 1
        for index, (layer, kv) in enumerate(zip(self._layers, pool, strict=True)):
            qkv = run.linear(h, layer.qkv, layer.qkv_bias)
            q = run.rotate_and_store(
                qkv, records, self._turns, layer.qk_norm, eps, kv, config.num_heads
            )
            if sink is not None:
                sink.on_layer(index)
            if index == last and sampled is not None:
                if len(sampled) == 0:
                    return None
                # From here on nobody reads the other tokens' stream.
                attended = attend(q, kv).view(len(q), -1).index_select(0, sampled)
                x = x.index_select(0, sampled)
            else:
                attended = attend(q, kv).view(len(q), -1)
            delta = run.linear(attended, layer.out, layer.out_bias)
            h = run.add_norm(x, delta, layer.mlp_norm, eps)
            delta = run.linear(run.silu_mul(run.linear(h, layer.gate_up)), layer.down)
            following = self._norm if index == last else self._layers[index + 1].attn_norm
            h = run.add_norm(x, delta, following, eps)
        return run.linear(h, self._head, out=scores)


def _turns(config: DecoderConfig, device: torch.device) -> Tensor:
    """Cosines, then sines of every position: ``[positions, head_dim]`` float32."""
    # The same on every device, so computed on one that rounds the same everywhere.
    angles = torch.arange(config.max_positions).float()[:, None] * frequencies(config.rope)
    scale = amplitude(config.rope)
    return torch.cat((angles.cos() * scale, angles.sin() * scale), 1).to(device)


class _Loader:
    """Reads weights by their place in the model, joining those that are used together."""

    def __init__(
        self, config: DecoderConfig, weights: Weights, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._config = config
        self._weights = weights
        self._dtype = dtype
        self._device = device

    def layer(self, index: int) -> _Layer:
        config, prefix = self._config, f"model.layers.{index}"
        hidden, middle = config.hidden_size, config.intermediate_size
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        heads = qkv_modules(config, attention)
        q = config.num_heads * config.head_dim
        return _Layer(
            attn_norm=self.norm(f"{prefix}.input_layernorm"),
            qkv=self._joined(heads, hidden),
            qkv_bias=self._bias(heads) if config.qkv_bias else None,
            qk_norm=self._qk_norm(attention) if config.qk_norm else None,
            out=self.matrix(f"{attention}.o_proj", hidden, q),
            out_bias=self._bias({f"{attention}.o_proj": hidden}) if config.out_bias else None,
            mlp_norm=self.norm(f"{prefix}.post_attention_layernorm"),
            gate_up=self._joined({f"{mlp}.gate_proj": middle, f"{mlp}.up_proj": middle}, hidden),
            down=self.matrix(f"{mlp}.down_proj", hidden, middle),
        )

    def matrix(self, module: str, rows: int, columns: int) -> Tensor:
        return self._read(f"{module}.weight", (rows, columns))

    def norm(self, module: str) -> Tensor:
        return self._read(f"{module}.weight", (self._config.hidden_size,))

    def _qk_norm(self, attention: str) -> Tensor:
        shape = (self._config.head_dim,)
        names = (f"{attention}.q_norm.weight", f"{attention}.k_norm.weight")
        return torch.stack([self._read(name, shape) for name in names])

    def _joined(self, modules: dict[str, int], columns: int) -> Tensor:
        """One matrix of the rows of all ``modules``, in that order."""
        joined = torch.empty(
            (sum(modules.values()), columns), dtype=self._dtype, device=self._device
        )
        at = 0
        for module, rows in modules.items():
            # One at a time: nothing but the result is there twice.
            joined[at : at + rows] = self.matrix(module, rows, columns)
            at += rows
        return joined

    def _bias(self, modules: dict[str, int]) -> Tensor:
        return torch.cat([self._read(f"{name}.bias", (rows,)) for name, rows in modules.items()])

    def _read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._weights.read(name, shape, self._dtype).to(self._device)
