import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf_samples import CONTEXT, FFN, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, write_gguf
from transformers import AutoConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from splitserve.errors import ConfigError
from splitserve.modelstore.gguf_config import build_config
from splitserve.modelstore.gguf_header import read_header
from splitserve.modelstore.gguf_rope import llama3_divisors

Change = Callable[[gguf.GGUFWriter], None]


@pytest.mark.parametrize(
    ("arch", "architecture"),
    [
        ("llama", "LlamaForCausalLM"),
        ("qwen2", "Qwen2ForCausalLM"),
        ("qwen3", "Qwen3ForCausalLM"),
    ],
)
def test_each_family_gets_the_values_of_its_file(
    tmp_path: Path, arch: str, architecture: str
) -> None:
    config = build_config(read_header(write_gguf(tmp_path / "m.gguf", arch=arch)))

    assert config["architectures"] == [architecture]
    assert config["model_type"] == arch
    assert config["hidden_size"] == HIDDEN
    assert config["intermediate_size"] == FFN
    assert config["num_hidden_layers"] == LAYERS
    assert config["num_attention_heads"] == HEADS
    assert config["num_key_value_heads"] == KV_HEADS
    assert config["head_dim"] == HEAD_DIM
    assert config["max_position_embeddings"] == CONTEXT
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_theta"] == 50000.0
    assert config["rope_scaling"] is None


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_reads_the_same_config_from_the_gguf_file(
    tmp_path: Path, arch: str, tied: bool
) -> None:
    path = write_gguf(tmp_path / "m.gguf", arch=arch, tied=tied)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "config.json").write_text(json.dumps(build_config(read_header(path))))

    ours = AutoConfig.from_pretrained(tmp_path / "ours")
    theirs = AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")

    assert type(ours) is type(theirs)
    for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
        "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
    ):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.rms_norm_eps == pytest.approx(theirs.rms_norm_eps)
    assert ours.rope_parameters["rope_theta"] == theirs.rope_parameters["rope_theta"]


@pytest.mark.parametrize(
    ("dtype", "name"), [(np.float32, "float32"), (np.float16, "float16"), (np.int8, "bfloat16")]
)
def test_plain_weights_keep_their_type_and_others_get_bfloat16(
    tmp_path: Path, dtype: type, name: str
) -> None:
    config = build_config(read_header(write_gguf(tmp_path / "m.gguf", dtype=dtype)))

    assert config["torch_dtype"] == name


def test_attention_bias_shows_in_the_tensors(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("blk.0.attn_q.bias", np.zeros(HIDDEN, dtype=np.float32))

    assert build_config(read_header(write_gguf(tmp_path / "b.gguf", change=change)))[
        "attention_bias"
    ]
    assert not build_config(read_header(write_gguf(tmp_path / "m.gguf")))["attention_bias"]


def test_what_a_file_need_not_say_gets_llama_cpps_defaults(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", leave_out=["attention.head_count_kv", "attention.key_length"]
    )

    config = build_config(read_header(path))

    assert config["num_key_value_heads"] == HEADS
    assert config["head_dim"] == HIDDEN // HEADS


def test_linear_and_yarn_scaling_are_read(tmp_path: Path) -> None:
    def linear(writer: gguf.GGUFWriter) -> None:
        writer.add_string("llama.rope.scaling.type", "linear")
        writer.add_float32("llama.rope.scaling.factor", 4.0)

    def yarn(writer: gguf.GGUFWriter) -> None:
        writer.add_string("llama.rope.scaling.type", "yarn")
        writer.add_float32("llama.rope.scaling.factor", 2.0)
        writer.add_uint32("llama.rope.scaling.original_context_length", 256)

    assert _scaling(tmp_path, linear) == {"rope_type": "linear", "factor": 4.0}
    assert _scaling(tmp_path, yarn) == {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 256,
    }


def test_llama3_scaling_is_recognised_from_its_divisors(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        divisors = llama3_divisors(HEAD_DIM, 50000.0, 32.0)
        writer.add_tensor("rope_freqs.weight", np.array(divisors, dtype=np.float32))

    assert _scaling(tmp_path, change) == {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


@pytest.mark.parametrize(("head_dim", "theta", "factor"), [(128, 5e5, 8.0), (64, 5e5, 32.0)])
def test_llama3_divisors_are_those_of_transformers(
    head_dim: int, theta: float, factor: float
) -> None:
    config = LlamaConfig(
        hidden_size=head_dim * 2,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=131072,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)

    ours = torch.tensor(llama3_divisors(head_dim, theta, factor), dtype=torch.float64)

    torch.testing.assert_close(plain / ours, scaled.double(), rtol=1e-5, atol=0)


def _unknown_divisors(writer: gguf.GGUFWriter) -> None:
    writer.add_tensor("rope_freqs.weight", np.array([1, 2, 3, 4], dtype=np.float32))


def _longrope(writer: gguf.GGUFWriter) -> None:
    writer.add_string("llama.rope.scaling.type", "longrope")
    writer.add_float32("llama.rope.scaling.factor", 4.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_unknown_divisors, "is not Llama 3's scaling"),
        (_longrope, "rope scaling 'longrope' is not supported"),
        (lambda w: w.add_uint32("llama.expert_count", 8), "is a mixture of experts"),
        (lambda w: w.add_uint16("split.count", 2), "llama-gguf-split --merge"),
        (lambda w: w.add_uint32("llama.rope.dimension_count", 4), "rotates 4 of 8 dimensions"),
    ],
)
def test_what_would_give_wrong_answers_is_refused(
    tmp_path: Path, change: Change, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_config(read_header(write_gguf(tmp_path / "m.gguf", change=change)))


def test_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", arch="mamba")

    with pytest.raises(ConfigError, match=r"'mamba' is not supported \(one of llama, qwen2"):
        build_config(read_header(path))


def test_a_missing_number_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", leave_out=["block_count"])

    with pytest.raises(ConfigError, match=r"lacks llama\.block_count"):
        build_config(read_header(path))


def _scaling(tmp_path: Path, change: Change) -> object:
    path = write_gguf(tmp_path / "m.gguf", change=change)
    return build_config(read_header(path))["rope_scaling"]
