"""The same model from safetensors (whole, sharded) and from GGUF (plain, quantised)."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf.quants import dequantize, quantize
from native_rig import FAMILIES, Saved, open_runner, save, scores, sequences
from safetensors.torch import load_file, save_file

from splitserve.engine.models.gguf import GGUFWeights, gguf_name
from splitserve.engine.models.weights import DummyWeights, SafetensorsWeights
from splitserve.errors import ConfigError

Kind = gguf.GGMLQuantizationType


def paired(name: str, tensor: np.ndarray, config: Any) -> np.ndarray:
    """The order that converters to GGUF's ``llama`` give the rows of rotary heads."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(name.split(".")[-2])
    if count is None:
        return tensor
    halves = tensor.reshape(count, 2, tensor.shape[0] // count // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def write_gguf(source: Path, target: Path, arch: str, kind: Kind, model: Any) -> None:
    """The checkpoint of ``source`` as a GGUF folder; matrices in blocks of ``kind``."""
    target.mkdir()
    (target / "config.json").write_bytes((source / "config.json").read_bytes())
    writer = gguf.GGUFWriter(target / "model.gguf", arch)
    for name, tensor in load_file(source / "model.safetensors").items():
        values = tensor.numpy()
        if arch == "llama":
            values = paired(name, values, model.config)
        stored = kind if values.ndim == 2 else Kind.F32
        writer.add_tensor(gguf_name(name), quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def answers(path: Path, **settings: Any) -> torch.Tensor:
    runner = open_runner(path, **settings)
    [sequence] = sequences(runner, [25])
    [found] = scores(runner, [sequence.row(25)])
    runner.close()
    return found


@pytest.mark.parametrize(
    ("name", "arch"),
    [("llama", "llama"), ("llama-bias", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")],
)
def test_gguf_gives_exactly_what_safetensors_gives(tmp_path: Path, name: str, arch: str) -> None:
    model = save(FAMILIES[name], tmp_path / "hf")
    write_gguf(tmp_path / "hf", tmp_path / "gguf", arch, Kind.F32, model)
    assert torch.equal(answers(tmp_path / "gguf"), answers(tmp_path / "hf"))


@pytest.mark.parametrize("kind", [Kind.Q4_1, Kind.Q8_0, Kind.Q4_0, Kind.F16, Kind.BF16])
def test_blocks_are_computed_back_to_the_numbers_they_stand_for(tmp_path: Path, kind: Kind) -> None:
    model = save(FAMILIES["llama"], tmp_path / "hf")
    write_gguf(tmp_path / "hf", tmp_path / "gguf", "llama", kind, model)
    weights = GGUFWeights(tmp_path / "gguf" / "model.gguf", head_dim=16)
    stored = load_file(tmp_path / "hf" / "model.safetensors")
    for name in ("model.layers.1.mlp.down_proj.weight", "model.layers.1.self_attn.k_proj.weight"):
        expected = stored[name].numpy()
        found = weights.read(name, expected.shape, torch.float32).numpy()
        if name.endswith("down_proj.weight"):
            np.testing.assert_array_equal(found, dequantize(quantize(expected, kind), kind))
        assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def test_the_order_of_rotary_heads_is_left_alone_outside_llama(tmp_path: Path) -> None:
    model = save(FAMILIES["qwen2"], tmp_path / "hf")
    write_gguf(tmp_path / "hf", tmp_path / "gguf", "qwen2", Kind.F32, model)
    weights = GGUFWeights(tmp_path / "gguf" / "model.gguf", head_dim=16)
    name = "model.layers.0.self_attn.q_proj.weight"
    expected = load_file(tmp_path / "hf" / "model.safetensors")[name]
    assert torch.equal(weights.read(name, (64, 64), torch.float32), expected)


def test_shards_are_found_through_their_index(tmp_path: Path, llama: Saved) -> None:
    path, model = llama
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert torch.equal(answers(tmp_path), answers(path))


def test_the_dtype_is_the_checkpoints_own_when_asked_for_auto(tmp_path: Path, llama: Saved) -> None:
    path, _ = llama
    half = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path)
    for folder, dtype in ((path, "float32"), (tmp_path, "bfloat16")):
        runner = open_runner(folder, dtype="auto")
        assert runner.describe().dtype == dtype
        runner.close()


def test_dummy_weights_depend_on_seed_and_name_only(llama: Saved) -> None:
    path, _ = llama
    first, second = answers(path, load_format="dummy", seed=3), answers(path, load_format="dummy")
    assert torch.equal(first, answers(path, load_format="dummy", seed=3))
    assert not torch.equal(first, second)
    name = "model.layers.0.mlp.up_proj.weight"
    read = DummyWeights(3).read(name, (4, 5), torch.float32)
    assert torch.equal(read, DummyWeights(3).read(name, (4, 5), torch.float32))
    assert not torch.equal(read, DummyWeights(3).read("lm_head.weight", (4, 5), torch.float32))


def test_a_missing_tensor_is_named(tmp_path: Path, llama: Saved) -> None:
    path, _ = llama
    tensors = load_file(path / "model.safetensors")
    del tensors["model.layers.2.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((path / "config.json").read_bytes())
    with pytest.raises(ConfigError, match=r"no model\.layers\.2\.mlp\.up_proj\.weight"):
        open_runner(tmp_path)


def test_a_tensor_that_does_not_fit_the_configuration_is_named(
    tmp_path: Path, llama: Saved
) -> None:
    path, _ = llama
    (tmp_path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes())
    config = json.loads((path / "config.json").read_text())
    config["intermediate_size"] = 95
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"gate_proj\.weight is \[96, 64\].* says \[95, 64\]"):
        open_runner(tmp_path)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0not json")
    with pytest.raises(ConfigError, match=r"cannot read .*model\.safetensors"):
        SafetensorsWeights([tmp_path / "model.safetensors"])


def test_a_folder_without_weights_says_what_to_do(tmp_path: Path, llama: Saved) -> None:
    path, _ = llama
    (tmp_path / "config.json").write_bytes((path / "config.json").read_bytes())
    with pytest.raises(ConfigError, match="holds no weights"):
        open_runner(tmp_path)
    open_runner(tmp_path, load_format="dummy").close()


def test_tied_embeddings_need_no_head_of_their_own(tmp_path: Path) -> None:
    save(FAMILIES["llama-tied"], tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    assert answers(tmp_path).isfinite().all()
