"""A decoder's configuration is read from config.json, and what is unknown is refused by name."""

import json
from typing import Any

import pytest
import torch
import transformers
from native_rig import LLAMA3, TINY, YARN, Saved
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from splitserve.engine.layers.rope import Rope, amplitude, frequencies, rotate_
from splitserve.engine.models.config import read_decoder_config
from splitserve.errors import ConfigError

LLAMA: dict[str, Any] = {**TINY, "architectures": ["LlamaForCausalLM"], "rope_theta": 5000.0}


def test_sizes_are_those_of_transformers(family: Saved) -> None:
    path, model = family
    config = model.config
    found = read_decoder_config(json.loads((path / "config.json").read_text()))
    assert found.vocab_size == config.vocab_size
    assert found.num_layers == config.num_hidden_layers
    assert (found.num_heads, found.num_kv_heads) == (
        config.num_attention_heads,
        config.num_key_value_heads,
    )
    assert found.head_dim == model.model.layers[0].self_attn.head_dim
    assert found.rms_norm_eps == config.rms_norm_eps
    assert found.tie_word_embeddings == config.tie_word_embeddings
    assert found.qkv_bias == (model.model.layers[0].self_attn.q_proj.bias is not None)
    assert found.out_bias == (model.model.layers[0].self_attn.o_proj.bias is not None)
    assert found.qk_norm == hasattr(model.model.layers[0].self_attn, "q_norm")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture GPT2LMHeadModel is not supported"),
        ({"architectures": None}, r"architecture \(none\)"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"num_hidden_layers": None}, "lacks num_hidden_layers"),
        ({"vocab_size": "many"}, "lacks vocab_size"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope type 'longrope' is not supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {**YARN, "mscale": 0.7}}, "mscale"),
    ],
)
def test_what_cannot_be_run_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_decoder_config({**LLAMA, **changes})


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("MistralForCausalLM", {"sliding_window": 100}, 100),
        ("MistralForCausalLM", {"sliding_window": None}, 512),
        ("MistralForCausalLM", {"sliding_window": 4096}, 512),
        ("Qwen2ForCausalLM", {"sliding_window": 100, "use_sliding_window": True}, 100),
        ("Qwen2ForCausalLM", {"sliding_window": 100, "use_sliding_window": False}, 512),
        ("Qwen3ForCausalLM", {"sliding_window": 100}, 512),
    ],
)
def test_a_sliding_window_bounds_the_context(
    name: str, settings: dict[str, Any], expected: int
) -> None:
    found = read_decoder_config({**LLAMA, "architectures": [name], **settings})
    assert found.max_positions == expected


ROPES: list[dict[str, Any]] = [
    {"rope_type": "linear", "rope_theta": 5000.0, "factor": 3.0},
    LLAMA3,
    YARN,
    {**YARN, "factor": 1.0},
    {**YARN, "attention_factor": 1.3, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0},
]


@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize("parameters", ROPES)
def test_stretched_frequencies_are_those_of_transformers(
    parameters: dict[str, Any], older: bool
) -> None:
    theirs = transformers.LlamaConfig(**{**TINY, "head_dim": 64, "rope_parameters": parameters})
    expected, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](theirs, "cpu")
    ours: dict[str, Any] = {**LLAMA, "head_dim": 64, "rope_theta": parameters["rope_theta"]}
    ours["rope_scaling" if older else "rope_parameters"] = parameters
    config = read_decoder_config(ours).rope
    torch.testing.assert_close(frequencies(config), expected, rtol=1e-6, atol=0)
    assert amplitude(config) == pytest.approx(scale)


def test_rotation_turns_pairs_half_a_head_apart() -> None:
    config = read_decoder_config({**LLAMA, "head_dim": 8}).rope
    cos, sin = Rope(config, torch.float32).at(torch.tensor([0, 3]))
    heads = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    turned = heads.clone()
    rotate_(turned, cos, sin)
    assert torch.equal(turned[0], heads[0])
    angle = 3 * 5000.0 ** (-2 / 8)
    first, second = heads[1, :, 1], heads[1, :, 5]
    c, s = torch.tensor(angle).cos(), torch.tensor(angle).sin()
    torch.testing.assert_close(turned[1, :, 1], first * c - second * s)
    torch.testing.assert_close(turned[1, :, 5], second * c + first * s)
