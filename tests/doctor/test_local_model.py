"""A model is read as far as it is here, and never fetched."""

from pathlib import Path

import pytest

from flow.tiny_model import make_model_folder
from splitserve.doctor.local_model import local_facts, local_folder
from splitserve.errors import ConfigError
from splitserve.launch.topology import ModelAsked

KV_TOKEN_BYTES = 2 * 2 * 1 * 32 * 2
"""K and V, 2 layers, 1 head of 32, 16 bits."""


def in_hub(cache: Path, repository: str) -> Path:
    """A folder of the hub's cache, as its client keeps one."""
    home = cache / f"models--{repository.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("abc")
    (home / "snapshots").mkdir()
    return make_model_folder(home / "snapshots" / "abc")


def test_a_folder_tells_what_its_kv_weighs(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "tiny")
    facts = local_facts(ModelAsked(str(folder)))
    assert facts is not None
    assert (facts.kv_token_bytes, facts.max_model_len) == (KV_TOKEN_BYTES, 8192)
    wide = local_facts(ModelAsked(str(folder), dtype="float32"))
    assert wide is not None
    assert wide.kv_token_bytes == 2 * KV_TOKEN_BYTES


def test_what_the_hubs_client_has_is_found(tmp_path: Path) -> None:
    made = in_hub(tmp_path, "org/tiny")
    found = local_folder("org/tiny", {"HF_HUB_CACHE": str(tmp_path)})
    assert found is not None
    assert found.path == made


def test_what_was_fetched_in_part_is_not_here_yet(tmp_path: Path) -> None:
    made = in_hub(tmp_path, "org/tiny")
    (made / "model.safetensors.index.json").write_text('{"weight_map": {"w": "1.safetensors"}}')
    assert local_folder("org/tiny", {"HF_HUB_CACHE": str(tmp_path)}) is None


@pytest.mark.parametrize("name", ["org/other", "smollm2"])
def test_what_would_have_to_be_fetched_is_not_here(name: str, tmp_path: Path) -> None:
    environ = {"HF_HUB_CACHE": str(tmp_path), "SPLITSERVE_CACHE": str(tmp_path)}
    assert local_facts(ModelAsked(name), environ) is None


@pytest.mark.parametrize("name", ["nothing", "/nonexistent/model"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no model"):
        local_folder(name)
