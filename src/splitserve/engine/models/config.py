"""What a decoder is made of, read from a Hugging Face ``config.json``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from splitserve.engine.layers.rope import RopeConfig
from splitserve.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and switches of one decoder. ``max_positions`` bounds prompt and answer together."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_positions: int
    tie_word_embeddings: bool
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False


def qkv_modules(config: DecoderConfig, attention: str) -> dict[str, int]:
    """Names and rows of the projections to queries, keys and values, in that order."""
    q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {f"{attention}.q_proj": q, f"{attention}.k_proj": kv, f"{attention}.v_proj": kv}


def read_decoder_config(config: Mapping[str, Any]) -> DecoderConfig:
    """Raises ConfigError, naming what is unknown or missing, for a model that cannot be run."""
    names = config.get("architectures") or []
    for name in names:
        if name in _FAMILIES:
            return _FAMILIES[name](config)
    raise ConfigError(
        f"architecture {', '.join(names) or '(none)'} is not supported "
        f"(one of {', '.join(_FAMILIES)})"
    )


def _llama(config: Mapping[str, Any]) -> DecoderConfig:
    if config.get("mlp_bias"):
        raise ConfigError("mlp_bias is not supported")
    bias = bool(config.get("attention_bias"))
    return replace(_common(config), qkv_bias=bias, out_bias=bias)


def _mistral(config: Mapping[str, Any]) -> DecoderConfig:
    return _within_window(_common(config), config.get("sliding_window"))


def _qwen2(config: Mapping[str, Any]) -> DecoderConfig:
    return replace(_qwen_window(config), qkv_bias=True)


def _qwen3(config: Mapping[str, Any]) -> DecoderConfig:
    bias = bool(config.get("attention_bias"))
    return replace(_qwen_window(config), qkv_bias=bias, out_bias=bias, qk_norm=True)


_FAMILIES: Final[dict[str, Callable[[Mapping[str, Any]], DecoderConfig]]] = {
    "LlamaForCausalLM": _llama,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
}


def _qwen_window(config: Mapping[str, Any]) -> DecoderConfig:
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    return _within_window(_common(config), window)


def _within_window(decoder: DecoderConfig, window: int | None) -> DecoderConfig:
    # Up to its window, sliding attention is full attention; beyond it we do not go.
    if window is None:
        return decoder
    return replace(decoder, max_positions=min(decoder.max_positions, window))


def _common(config: Mapping[str, Any]) -> DecoderConfig:
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ConfigError(f"hidden_act {activation!r} is not supported (only silu)")
    heads, hidden = _whole(config, "num_attention_heads"), _whole(config, "hidden_size")
    head_dim = config.get("head_dim") or hidden // heads
    positions = _whole(config, "max_position_embeddings")
    return DecoderConfig(
        vocab_size=_whole(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_whole(config, "intermediate_size"),
        num_layers=_whole(config, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope=_rope(config, head_dim, positions),
        max_positions=positions,
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
    )


def _rope(config: Mapping[str, Any], head_dim: int, positions: int) -> RopeConfig:
    """From ``rope_parameters`` (transformers 5), or ``rope_theta`` and ``rope_scaling`` (older)."""
    found = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = found.get("rope_type", found.get("type", "default"))
    if kind not in ("default", "linear", "llama3", "yarn"):
        raise ConfigError(f"rope type {kind!r} is not supported (default, linear, llama3, yarn)")
    if found.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ConfigError("partial_rotary_factor is not supported")
    if found.get("mscale"):
        raise ConfigError("yarn's mscale is not supported")
    original = config.get("original_max_position_embeddings")
    attention_factor = found.get("attention_factor")
    return RopeConfig(
        head_dim=head_dim,
        theta=float(found.get("rope_theta", config.get("rope_theta", 10000.0))),
        kind=kind,
        factor=float(found.get("factor") or 1.0),
        original_positions=original or found.get("original_max_position_embeddings") or positions,
        low_freq_factor=float(found.get("low_freq_factor", 1.0)),
        high_freq_factor=float(found.get("high_freq_factor", 4.0)),
        beta_fast=float(found.get("beta_fast") or 32.0),
        beta_slow=float(found.get("beta_slow") or 1.0),
        attention_factor=None if attention_factor is None else float(attention_factor),
        truncate=bool(found.get("truncate", True)),
    )


def _whole(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"config.json lacks {key}: add it, a whole number above 0")
    return value
