"""A Hugging Face ``config.json`` from a GGUF file's metadata.

GGUF's keys are those of the specification (ggml, docs/gguf.md) and of llama.cpp's llama-arch.cpp;
the names on the other side are those of the transformers configuration classes.
"""

from dataclasses import dataclass
from typing import Any, Final

from splitserve.errors import ConfigError
from splitserve.modelstore.gguf_header import GGUFHeader
from splitserve.modelstore.gguf_rope import rope_scaling

_F32, _F16, _BF16 = 0, 1, 30
_DTYPES: Final = {_F32: "float32", _F16: "float16", _BF16: "bfloat16"}


@dataclass(frozen=True, slots=True)
class _Family:
    """A GGUF architecture's name among transformers' classes, and settings it always has."""

    architecture: str
    model_type: str
    extra: dict[str, Any]


# llama.cpp stores Mistral models under "llama": the computation is the same.
_FAMILIES: Final = {
    "llama": _Family("LlamaForCausalLM", "llama", {"mlp_bias": False}),
    "qwen2": _Family("Qwen2ForCausalLM", "qwen2", {"use_sliding_window": False}),
    "qwen3": _Family("Qwen3ForCausalLM", "qwen3", {"use_sliding_window": False}),
}


def build_config(header: GGUFHeader) -> dict[str, Any]:
    """The contents of ``config.json``.

    Raises ConfigError for an architecture that is not in the table, for a mixture of experts, for
    one part of a split file, and when a number the model cannot do without is missing.
    """
    arch = header.text("general.architecture") or "(none)"
    family = _FAMILIES.get(arch)
    if family is None:
        raise ConfigError(
            f"{header.path}: architecture {arch!r} is not supported (one of {', '.join(_FAMILIES)})"
        )
    _refuse_what_is_missing_here(header, arch)
    heads = _required(header, f"{arch}.attention.head_count")
    hidden = _required(header, f"{arch}.embedding_length")
    context = _required(header, f"{arch}.context_length")
    head_dim = header.integer(f"{arch}.attention.key_length") or hidden // heads
    _refuse_partial_rotary(header, arch, head_dim)
    config: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": _vocab_size(header),
        "hidden_size": hidden,
        "intermediate_size": _required(header, f"{arch}.feed_forward_length"),
        "num_hidden_layers": _required(header, f"{arch}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": header.integer(f"{arch}.attention.head_count_kv") or heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": _number(header, f"{arch}.attention.layer_norm_rms_epsilon"),
        "rope_theta": header.number(f"{arch}.rope.freq_base") or 10000.0,
        "rope_scaling": rope_scaling(header, arch, head_dim, context),
        "max_position_embeddings": context,
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": "blk.0.attn_q.bias" in header.tensors,
        "torch_dtype": _dtype(header),
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        config[f"{name}_token_id"] = header.integer(f"tokenizer.ggml.{key}_token_id")
    return config | family.extra


def _refuse_what_is_missing_here(header: GGUFHeader, arch: str) -> None:
    if (header.integer(f"{arch}.expert_count") or 0) > 0:
        raise ConfigError(f"{header.path} is a mixture of experts: give its Hugging Face folder")
    if (header.integer("split.count") or 1) > 1:
        raise ConfigError(
            f"{header.path} is one part of a split file: join it with llama-gguf-split --merge"
        )


def _refuse_partial_rotary(header: GGUFHeader, arch: str, head_dim: int) -> None:
    rotary = header.integer(f"{arch}.rope.dimension_count")
    if rotary is not None and rotary != head_dim:
        raise ConfigError(
            f"{header.path} rotates {rotary} of {head_dim} dimensions a head: not supported"
        )


def _vocab_size(header: GGUFHeader) -> int:
    # The embedding's rows, because some files pad them beyond the tokens they name.
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None:
        raise ConfigError(f"{header.path} holds no token_embd.weight: it is no language model")
    return embedding.shape[0]


def _dtype(header: GGUFHeader) -> str:
    """What the weights are best computed in: their own type, or bfloat16 for quantised ones."""
    types = {info.ggml_type for info in header.tensors.values() if len(info.shape) > 1}
    if len(types) == 1:
        return _DTYPES.get(types.pop(), "bfloat16")
    return "bfloat16"


def _required(header: GGUFHeader, key: str) -> int:
    value = header.integer(key)
    if value is None:
        raise ConfigError(f"{header.path} lacks {key} (or it differs by layer): not supported")
    return value


def _number(header: GGUFHeader, key: str) -> float:
    value = header.number(key)
    if value is None:
        raise ConfigError(f"{header.path} lacks {key}: convert the model again")
    # The file holds 32 bits: 9.999999747378752e-06 was written as 1e-05.
    return float(f"{value:.6g}")
