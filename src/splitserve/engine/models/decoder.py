"""The decoder: token ids and paged KV in, scores over the vocabulary out.

One layer, in the order of the code: normalise, project to queries, keys and values, rotate, store
keys and values into the pool, attend, project back onto the stream; normalise, gated MLP.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from splitserve.engine.api import KVSink
from splitserve.engine.kv.pool import KVLayer
from splitserve.engine.layers.attention import Part
from splitserve.engine.layers.linear import Linear, make_linear
from splitserve.engine.layers.norm import RMSNorm
from splitserve.engine.layers.rope import Rope, rotate_
from splitserve.engine.models.batch import Batch
from splitserve.engine.models.config import DecoderConfig, qkv_modules
from splitserve.engine.models.weights import Shape, Weights


@dataclass(frozen=True, slots=True)
class _Layer:
    """``qkv`` gives all heads, queries first; ``qk_norm`` is for the heads of queries and keys."""

    attn_norm: RMSNorm
    qkv: Linear
    qk_norm: RMSNorm | None
    out: Linear
    mlp_norm: RMSNorm
    gate: Linear
    up: Linear
    down: Linear


class Decoder:
    """A model's weights. ``forward`` is the only thing it does."""

    def __init__(self, config: DecoderConfig, weights: Weights, dtype: torch.dtype) -> None:
        """Reads tensor by tensor. Raises ConfigError when ``weights`` do not fit ``config``."""
        loader = _Loader(config, weights, dtype)
        self._config = config
        self._split = (config.num_heads, 2 * config.num_kv_heads)
        self._rope = Rope(config.rope, dtype)
        self._embedding = loader.matrix("model.embed_tokens", config.vocab_size, config.hidden_size)
        self._layers = [loader.layer(index) for index in range(config.num_layers)]
        self._norm = loader.norm("model.norm")
        self._head = make_linear(
            self._embedding
            if config.tie_word_embeddings
            else loader.matrix("lm_head", config.vocab_size, config.hidden_size)
        )

    def forward(self, batch: Batch, pool: Sequence[KVLayer], sink: KVSink | None) -> Tensor | None:
        """Stores the KV of all tokens into ``pool`` and scores those of ``batch.sampled``.

        Returns ``[samples, vocab_size]``, None when nothing is to be sampled. ``sink`` is told
        after each layer's store.
        """
        x = torch.embedding(self._embedding, batch.tokens)
        rotation = self._rope.at(batch.positions)
        last = len(self._layers) - 1
        for index, (layer, kv) in enumerate(zip(self._layers, pool, strict=True)):
            heads = self._project(layer.attn_norm(x), layer, rotation)
            q, new = heads.split_with_sizes(self._split, 1)
            kv.rows.index_copy_(0, batch.slots, new.reshape(-1, heads.shape[2]))
            if sink is not None:
                sink.on_layer(index)
            if index == last and not batch.samples:
                return None
            attended = self._attend(q, kv, batch.parts)
            if index == last and batch.sampled is not None:
                # From here on nobody reads the other tokens' stream.
                x, attended = x[batch.sampled], attended[batch.sampled]
            x = layer.out.add(attended, x)
            h = layer.mlp_norm(x)
            x = layer.down.add(layer.up.mul(h, layer.gate.silu(h)), x)
        return self._head(self._norm(x))

    def _project(self, x: Tensor, layer: _Layer, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Heads ``[tokens, q + k + v heads, head_dim]``, queries and keys rotated."""
        config = self._config
        heads = layer.qkv(x).view(len(x), -1, config.head_dim)
        qk = heads.narrow(1, 0, config.num_heads + config.num_kv_heads)
        if layer.qk_norm is not None:
            qk.copy_(layer.qk_norm(qk))
        rotate_(qk, *rotation)
        return heads

    def _attend(self, q: Tensor, kv: KVLayer, parts: Sequence[Part]) -> Tensor:
        """What each token gathers from its sequence: ``[tokens, q heads * head_dim]``."""
        config = self._config
        q = q.view(len(q), config.num_kv_heads, -1, config.head_dim)
        found = [part.attend(q, kv) for part in parts]
        attended = found[0] if len(found) == 1 else torch.cat(found)
        return attended.reshape(len(q), -1)


class _Loader:
    """Reads weights by their place in the model."""

    def __init__(self, config: DecoderConfig, weights: Weights, dtype: torch.dtype) -> None:
        self._config = config
        self._weights = weights
        self._dtype = dtype

    def layer(self, index: int) -> _Layer:
        config, prefix = self._config, f"model.layers.{index}"
        hidden, middle = config.hidden_size, config.intermediate_size
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        heads = qkv_modules(config, attention)
        q = config.num_heads * config.head_dim
        return _Layer(
            attn_norm=self.norm(f"{prefix}.input_layernorm"),
            qkv=self._linear(heads, hidden, config.qkv_bias),
            qk_norm=self._qk_norm(attention) if config.qk_norm else None,
            out=self._linear({f"{attention}.o_proj": hidden}, q, config.out_bias),
            mlp_norm=self.norm(f"{prefix}.post_attention_layernorm"),
            gate=self._linear({f"{mlp}.gate_proj": middle}, hidden),
            up=self._linear({f"{mlp}.up_proj": middle}, hidden),
            down=self._linear({f"{mlp}.down_proj": hidden}, middle),
        )

    def matrix(self, module: str, rows: int, columns: int) -> Tensor:
        return self._read(f"{module}.weight", (rows, columns))

    def norm(self, module: str) -> RMSNorm:
        weight = self._read(f"{module}.weight", (self._config.hidden_size,))
        return RMSNorm(weight, self._config.rms_norm_eps)

    def _qk_norm(self, attention: str) -> RMSNorm:
        config = self._config
        q = self._read(f"{attention}.q_norm.weight", (config.head_dim,))
        k = self._read(f"{attention}.k_norm.weight", (config.head_dim,))
        heads = torch.cat((q.expand(config.num_heads, -1), k.expand(config.num_kv_heads, -1)))
        return RMSNorm(heads, config.rms_norm_eps)

    def _linear(self, modules: dict[str, int], columns: int, bias: bool = False) -> Linear:
        """One matrix of the rows of all ``modules``, in that order."""
        weight = torch.cat([self.matrix(name, rows, columns) for name, rows in modules.items()])
        if not bias:
            return make_linear(weight)
        vectors = [self._read(f"{name}.bias", (rows,)) for name, rows in modules.items()]
        return make_linear(weight, torch.cat(vectors))

    def _read(self, name: str, shape: Shape) -> Tensor:
        return self._weights.read(name, shape, self._dtype)
