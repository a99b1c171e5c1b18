"""The decoder: token ids and paged KV in, scores over the vocabulary out.

One layer, in the order of the code: normalise, project to queries, keys and values, rotate, store
keys and values into the pool, attend, project back onto the stream; normalise, gated MLP.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from splitserve.engine.api import KVSink
from splitserve.engine.kv.pool import KVPool
from splitserve.engine.layers.attention import attend_single, attend_span, gather
from splitserve.engine.layers.linear import Linear, make_linear
from splitserve.engine.layers.norm import rms_norm
from splitserve.engine.layers.rope import Rope, rotate_
from splitserve.engine.models.batch import Batch
from splitserve.engine.models.config import DecoderConfig
from splitserve.engine.models.weights import Weights


@dataclass(frozen=True, slots=True)
class _Layer:
    """``qkv`` gives all heads at once, ``[q | k | v]``; ``qk_norm [q + k heads, head_dim]``."""

    attn_norm: Tensor
    qkv: Linear
    qk_norm: Tensor | None
    out: Linear
    mlp_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear


class Decoder:
    """A model's weights. ``forward`` is the only thing it does."""

    def __init__(self, config: DecoderConfig, weights: Weights, dtype: torch.dtype) -> None:
        self._config = config
        self._rope = Rope(config.rope, dtype)
        loader = _Loader(config, weights, dtype)
        table = (config.vocab_size, config.hidden_size)
        self._embedding = weights.read("model.embed_tokens.weight", table, dtype)
        self._layers = tuple(loader.layer(index) for index in range(config.num_layers))
        self._norm = weights.read("model.norm.weight", (config.hidden_size,), dtype)
        if config.tie_word_embeddings:
            self._head = make_linear(self._embedding)
        else:
            self._head = make_linear(weights.read("lm_head.weight", table, dtype))

    def forward(self, batch: Batch, pool: KVPool, sink: KVSink | None) -> Tensor | None:
        """Stores the KV of all tokens and scores those that ``batch.sampled`` names.

        Returns ``[sampled, vocab_size]``, None when there are none. ``sink`` is told after each
        layer's store.
        """
        eps = self._config.rms_norm_eps
        x = torch.embedding(self._embedding, batch.tokens)
        rotation = self._rope.at(batch.positions)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            heads = self._project(rms_norm(x, layer.attn_norm, eps), layer, rotation)
            self._store(heads, pool.layers[index], batch)
            if sink is not None:
                sink.on_layer(index)
            if index == last and not batch.samples:
                return None
            attended = self._attend(heads, pool.layers[index], batch)
            if index == last and batch.sampled is not None:
                # Nothing reads the others' stream any more.
                x, attended = x[batch.sampled], attended[batch.sampled]
            x = layer.out.add(attended, x)
            h = rms_norm(x, layer.mlp_norm, eps)
            x = layer.down.add(layer.up.mul(h, layer.gate.silu(h)), x)
        return self._head(rms_norm(x, self._norm, eps))

    def _project(self, x: Tensor, layer: _Layer, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Heads ``[tokens, q + k + v heads, head_dim]``; queries and keys rotated."""
        config = self._config
        heads = layer.qkv(x).view(len(x), -1, config.head_dim)
        qk = heads[:, : config.num_heads + config.num_kv_heads]
        if layer.qk_norm is not None:
            qk.copy_(torch.rms_norm(qk, (config.head_dim,), None, config.rms_norm_eps))
            qk.mul_(layer.qk_norm)
        rotate_(qk, *rotation)
        return heads

    def _store(self, heads: Tensor, layer: Tensor, batch: Batch) -> None:
        head_dim = self._config.head_dim
        kv = heads[:, self._config.num_heads :].reshape(-1, head_dim)
        layer.view(-1, head_dim).index_copy_(0, batch.slots, kv)

    def _attend(self, heads: Tensor, layer: Tensor, batch: Batch) -> Tensor:
        """What each token gathers from its sequence: ``[tokens, q heads * head_dim]``."""
        config = self._config
        tokens, q_heads, kv_heads = len(heads), config.num_heads, config.num_kv_heads
        q = heads[:, :q_heads].view(tokens, kv_heads, -1, config.head_dim)
        parts = []
        for group in batch.singles:
            k, v = gather(layer, group.index, len(group.tokens))
            parts.append(attend_single(q[group.tokens], k, v, group.mask))
        ...
        return torch.cat(parts).view(tokens, -1)
