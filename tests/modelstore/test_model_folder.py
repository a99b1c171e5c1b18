import json
from pathlib import Path
from typing import Any

import pytest

from splitserve.errors import ConfigError
from splitserve.modelstore.folder import ModelFolder, file_hash

CONFIG = {
    "max_position_embeddings": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "eos_token_id": 5,
}


def make(path: Path, files: dict[str, Any] | None = None, **config: Any) -> ModelFolder:
    path.mkdir(parents=True, exist_ok=True)
    contents = {"config.json": CONFIG | config, "tokenizer.json": {}} | (files or {})
    for name, value in contents.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (path / name).write_text(text, encoding="utf-8")
    return ModelFolder.open(path)


def test_weights_are_found_in_order(tmp_path: Path) -> None:
    folder = make(tmp_path, {"b.safetensors": "2", "a.safetensors": "1", "model.gguf": "3"})

    assert folder.format == "safetensors"
    assert [file.name for file in folder.weights] == ["a.safetensors", "b.safetensors"]
    assert folder.weight_bytes() == 2


def test_an_index_says_which_files_count(tmp_path: Path) -> None:
    index = {"weight_map": {"x": "model-2.safetensors", "y": "model-1.safetensors"}}
    folder = make(
        tmp_path,
        {
            "model-1.safetensors": "",
            "model-2.safetensors": "",
            "consolidated.safetensors": "",
            "model.safetensors.index.json": index,
        },
    )

    assert [file.name for file in folder.weights] == ["model-1.safetensors", "model-2.safetensors"]


def test_a_file_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    index = {"weight_map": {"x": "model-1.safetensors"}}

    with pytest.raises(ConfigError, match=r"model-1\.safetensors is missing: .*index.*names it"):
        make(tmp_path, {"model.safetensors.index.json": index})


def test_an_index_without_a_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no weight_map: get the folder again"):
        make(tmp_path, {"model.safetensors.index.json": {}})


def test_a_single_file_counts_alone_beside_copies(tmp_path: Path) -> None:
    folder = make(tmp_path, {"model.safetensors": "", "consolidated.safetensors": ""})

    assert [file.name for file in folder.weights] == ["model.safetensors"]


def test_a_folder_may_have_no_weights(tmp_path: Path) -> None:
    folder = make(tmp_path)

    assert (folder.format, folder.weights) == ("none", ())


def test_a_link_to_weights_that_are_gone_is_reported(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "model.gguf").symlink_to(tmp_path / "moved.gguf")

    with pytest.raises(ConfigError, match=r"moved\.gguf, which is gone: put it back"):
        ModelFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [7, 8]}, {}, (7, 8)),
        ({"eos_token_id": 7}, {}, (7,)),
        ({}, {}, (5,)),
        ({"eos_token_id": None}, {"eos_token_id": [1, 2]}, (1, 2)),
        (None, {}, (5,)),
        (None, {"eos_token_id": None}, ()),
    ],
)
def test_end_ids_come_from_generation_config_first(
    tmp_path: Path,
    generation: dict[str, Any] | None,
    config: dict[str, Any],
    expected: tuple[int, ...],
) -> None:
    files = {} if generation is None else {"generation_config.json": generation}

    assert make(tmp_path, files, **config).eos_token_ids() == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"tokenizer_config.json": {}}, None),
        ({"tokenizer_config.json": {"chat_template": "own"}}, "own"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [
                        {"name": "tool_use", "template": "tools"},
                        {"name": "default", "template": "plain"},
                    ]
                }
            },
            "plain",
        ),
        (
            {
                "chat_template.jinja": "file {{ é }}\n",
                "tokenizer_config.json": {"chat_template": "own"},
            },
            "file {{ é }}\n",
        ),
    ],
)
def test_the_chat_template_is_found_in_each_place(
    tmp_path: Path, files: dict[str, Any], expected: str | None
) -> None:
    assert make(tmp_path, files).chat_template() == expected


def test_special_tokens_may_be_text_or_objects(tmp_path: Path) -> None:
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "special": True},
        "pad_token": None,
        "add_bos_token": True,
    }
    folder = make(tmp_path, {"tokenizer_config.json": config})

    assert folder.special_tokens() == {"bos_token": "<s>", "eos_token": "</s>"}
    assert folder.add_bos_token() is True


def test_a_folder_that_is_silent_about_bos_says_so(tmp_path: Path) -> None:
    assert make(tmp_path).add_bos_token() is None


def test_kv_bytes_a_token_are_those_of_llama_3_1_70b(tmp_path: Path) -> None:
    folder = make(
        tmp_path, num_hidden_layers=80, num_attention_heads=64, hidden_size=8192, head_dim=None
    )

    assert folder.num_kv_heads() == 8
    assert folder.kv_token_bytes() == 320 * 1024
    assert folder.kv_token_bytes(itemsize=4) == 640 * 1024


def test_without_grouped_heads_every_head_has_its_kv(tmp_path: Path) -> None:
    folder = make(tmp_path, num_key_value_heads=None, head_dim=64)

    assert folder.num_kv_heads() == 32
    assert folder.kv_token_bytes() == 2 * 32 * 32 * 64 * 2


def test_the_longest_sequence_is_the_models_own(tmp_path: Path) -> None:
    assert make(tmp_path).max_model_len() == 4096


def test_the_content_hash_follows_config_and_weights_not_the_place(tmp_path: Path) -> None:
    weights = {"model.safetensors": "x" * 10}
    first = make(tmp_path / "a", weights).content_hash()

    assert make(tmp_path / "b", weights).content_hash() == first
    assert make(tmp_path / "c", weights, extra=1).content_hash() != first
    assert make(tmp_path / "d", {"model.safetensors": "x" * 9 + "y"}).content_hash() != first
    assert make(tmp_path / "e", {"other.safetensors": "x" * 10}).content_hash() != first


@pytest.mark.parametrize("place", [0, (1 << 20) - 1, -1, -(1 << 20)])
def test_a_change_at_either_edge_of_a_large_file_changes_its_hash(
    tmp_path: Path, place: int
) -> None:
    content = bytearray(3 << 20)
    (tmp_path / "a").write_bytes(content)
    content[place] = 1
    (tmp_path / "b").write_bytes(content)

    assert file_hash(tmp_path / "a") != file_hash(tmp_path / "b")


def test_tokenizer_and_template_have_hashes_of_their_own(tmp_path: Path) -> None:
    plain = make(tmp_path / "a")
    other_tokenizer = make(tmp_path / "b", {"tokenizer.json": {"a": 1}})
    with_template = make(tmp_path / "c", {"chat_template.jinja": "t"})

    assert plain.tokenizer_hash() != other_tokenizer.tokenizer_hash()
    assert plain.tokenizer_hash() == with_template.tokenizer_hash()
    assert plain.template_hash() != with_template.template_hash()
    assert plain.template_hash() == other_tokenizer.template_hash()


def test_the_served_name_is_the_folders_or_the_hubs(tmp_path: Path) -> None:
    hub = tmp_path / "models--org--some--model" / "snapshots" / "0a1b2c"

    assert make(tmp_path / "mine").served_name == "mine"
    assert make(hub).served_name == "org/some--model"


def test_a_relative_path_is_named_by_what_it_points_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")

    assert ModelFolder.open(Path()).served_name == "mine"


def test_a_missing_tokenizer_names_the_cure(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (tmp_path / "tokenizer.json").unlink()

    with pytest.raises(ConfigError, match=r"tokenizer\.json is missing: make one with"):
        folder.tokenizer_hash()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON .*: get the folder again"),
        ("[]", "is not a JSON object: get the folder again"),
        ("{}", "lacks max_position_embeddings: add it"),
    ],
)
def test_a_bad_config_is_reported_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    folder = make(tmp_path, {"config.json": text})

    with pytest.raises(ConfigError, match=rf"config\.json {message}"):
        folder.max_model_len()


def test_a_config_in_another_encoding_is_reported(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff"}')

    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        folder.config()


def test_a_folder_without_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json is missing: give a model folder"):
        ModelFolder.open(tmp_path)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="is no folder"):
        ModelFolder.open(tmp_path / "file")
