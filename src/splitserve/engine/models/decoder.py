"""The decoder: token ids and paged KV in, scores over the vocabulary out.

One layer, in the order of the code: normalise, project to queries, keys and values, rotate, store
keys and values into the pool, attend, project back onto the stream; normalise, gated MLP.

Tensor parallelism in one process: a layer is cut into shards, each with neighbouring key heads and
their query heads, an equal part of the MLP, and a pool of its own. They are computed one after the
other, and each adds its part to the stream: the sum that several devices would reduce. It is
rounded after each shard, so scores differ from those of one shard in their last bits.
"""

from collections.abc import Iterator, Sequence
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
class _Shard:
    """``qkv`` gives its heads, queries first; ``qk_norm`` is for the heads of queries and keys."""

    qkv: Linear
    qk_norm: RMSNorm | None
    out: Linear
    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class _Layer:
    attn_norm: RMSNorm
    mlp_norm: RMSNorm
    shards: tuple[_Shard, ...]


class Decoder:
    """A model's weights. ``forward`` is the only thing it does."""

    def __init__(
        self, config: DecoderConfig, weights: Weights, dtype: torch.dtype, shards: int = 1
    ) -> None:
        """Reads tensor by tensor. Raises ConfigError when ``weights`` do not fit ``config``.

        ``shards`` divides the numbers of heads and the width of the MLP.
        """
        loader = _Loader(config, weights, dtype, shards)
        self._head_dim = config.head_dim
        self._q_heads = config.num_heads // shards
        self._kv_heads = config.num_kv_heads // shards
        self._rope = Rope(config.rope, dtype)
        self._embedding = loader.matrix("model.embed_tokens", config.vocab_size, config.hidden_size)
        self._layers = [loader.layer(index) for index in range(config.num_layers)]
        self._norm = loader.norm("model.norm")
        self._head = make_linear(
            self._embedding
            if config.tie_word_embeddings
            else loader.matrix("lm_head", config.vocab_size, config.hidden_size)
        )

    def forward(
        self, batch: Batch, pool: Sequence[Sequence[KVLayer]], sink: KVSink | None
    ) -> Tensor | None:
        """Stores the KV of all tokens into ``pool`` and scores those of ``batch.sampled``.

        ``pool[i][s]`` is layer ``i`` of shard ``s``. Returns ``[samples, vocab_size]``, None when
        nothing is to be sampled. ``sink`` is told after each layer's store, of all shards.
        """
        x = torch.embedding(self._embedding, batch.tokens)
        rotation = self._rope.at(batch.positions)
        last = len(self._layers) - 1
        for index, (layer, kvs) in enumerate(zip(self._layers, pool, strict=True)):
            h = layer.attn_norm(x)
            queries = [
                self._store(self._project(h, shard, rotation), kv, batch.slots)
                for shard, kv in zip(layer.shards, kvs, strict=True)
            ]
            if sink is not None:
                sink.on_layer(index)
            if index == last and not batch.samples:
                return None
            attended = [
                self._attend(q, kv, batch.parts) for q, kv in zip(queries, kvs, strict=True)
            ]
            if index == last and batch.sampled is not None:
                # From here on nobody reads the other tokens' stream.
                x, attended = x[batch.sampled], [each[batch.sampled] for each in attended]
            x = _mlp(layer, _add_attended(layer, attended, x))
        return self._head(self._norm(x))

    def _project(self, x: Tensor, shard: _Shard, rotation: tuple[Tensor, Tensor]) -> Tensor:
        """Heads ``[tokens, q + k + v heads, head_dim]``, queries and keys rotated."""
        heads = shard.qkv(x).view(len(x), -1, self._head_dim)
        qk = heads.narrow(1, 0, self._q_heads + self._kv_heads)
        if shard.qk_norm is not None:
            qk.copy_(shard.qk_norm(qk))
        rotate_(qk, *rotation)
        return heads

    def _store(self, heads: Tensor, kv: KVLayer, slots: Tensor) -> Tensor:
        """Keys and values go to ``slots``, queries ``[tokens, q heads, head_dim]`` come back."""
        q, new = heads.split_with_sizes((self._q_heads, 2 * self._kv_heads), 1)
        kv.rows.index_copy_(0, slots, new.reshape(-1, self._head_dim))
        return q

    def _attend(self, q: Tensor, kv: KVLayer, parts: Sequence[Part]) -> Tensor:
        """What each token gathers from its sequence: ``[tokens, q heads * head_dim]``."""
        q = q.view(len(q), self._kv_heads, -1, self._head_dim)
        found = [part.attend(q, kv) for part in parts]
        attended = found[0] if len(found) == 1 else torch.cat(found)
        return attended.reshape(len(q), -1)


def _add_attended(layer: _Layer, attended: Sequence[Tensor], x: Tensor) -> Tensor:
    for shard, own in zip(layer.shards, attended, strict=True):
        x = shard.out.add(own, x)
    return x


def _mlp(layer: _Layer, x: Tensor) -> Tensor:
    h = layer.mlp_norm(x)
    for shard in layer.shards:
        x = shard.down.add(shard.up.mul(h, shard.gate.silu(h)), x)
    return x


class _Loader:
    """Reads weights by their place in the model, each once, and shares them out."""

    def __init__(
        self, config: DecoderConfig, weights: Weights, dtype: torch.dtype, shards: int
    ) -> None:
        self._config = config
        self._weights = weights
        self._dtype = dtype
        self._shards = shards

    def layer(self, index: int) -> _Layer:
        config, prefix = self._config, f"model.layers.{index}"
        middle = config.intermediate_size
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        q = config.num_heads * config.head_dim
        qk_norm = self._qk_norm(attention) if config.qk_norm else None
        parts = zip(
            self._by_rows(qkv_modules(config, attention), config.qkv_bias),
            self._by_columns(f"{attention}.o_proj", q, config.out_bias),
            self._by_rows({f"{mlp}.gate_proj": middle}),
            self._by_rows({f"{mlp}.up_proj": middle}),
            self._by_columns(f"{mlp}.down_proj", middle),
            strict=True,
        )
        return _Layer(
            attn_norm=self.norm(f"{prefix}.input_layernorm"),
            mlp_norm=self.norm(f"{prefix}.post_attention_layernorm"),
            shards=tuple(_Shard(qkv, qk_norm, *others) for qkv, *others in parts),
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
        q_heads, kv_heads = config.num_heads // self._shards, config.num_kv_heads // self._shards
        heads = torch.cat((q.expand(q_heads, -1), k.expand(kv_heads, -1)))
        return RMSNorm(heads, config.rms_norm_eps)

    def _by_rows(self, modules: dict[str, int], bias: bool = False) -> list[Linear]:
        """For each shard one matrix of its rows of all ``modules``, in that order."""
        columns = self._config.hidden_size
        weights = self._joined([self.matrix(name, rows, columns) for name, rows in modules.items()])
        if not bias:
            return [make_linear(weight) for weight in weights]
        vectors = [self._read(f"{name}.bias", (rows,)) for name, rows in modules.items()]
        return [make_linear(*both) for both in zip(weights, self._joined(vectors), strict=True)]

    def _by_columns(self, module: str, columns: int, bias: bool = False) -> list[Linear]:
        """For each shard a matrix of its columns. Results are summed: the first adds the bias."""
        rows = self._config.hidden_size
        first, *others = self.matrix(module, rows, columns).chunk(self._shards, 1)
        vector = self._read(f"{module}.bias", (rows,)) if bias else None
        return [
            make_linear(first.contiguous(), vector),
            *(make_linear(weight.contiguous()) for weight in others),
        ]

    def _joined(self, wholes: Sequence[Tensor]) -> Iterator[Tensor]:
        """Each shard's part of every one of ``wholes``, one after the other."""
        parts = [whole.chunk(self._shards) for whole in wholes]
        return (torch.cat(own) for own in zip(*parts, strict=True))

    def _read(self, name: str, shape: Shape) -> Tensor:
        return self._weights.read(name, shape, self._dtype)
