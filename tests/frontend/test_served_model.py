"""A model's folder says which parsers read its answers; the operator may say otherwise."""

import json
from pathlib import Path

import pytest

from frontend.samples import CHATML, HERMES, byte_level_inner
from splitserve.errors import ConfigError
from splitserve.frontend.model import ServedModel
from splitserve.modelstore.folder import ModelFolder


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    return folder_with(tmp_path, HERMES)


def folder_with(path: Path, template: str | None) -> ModelFolder:
    byte_level_inner().save(str(path / "tokenizer.json"))
    (path / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    config = {"bos_token": "<s>", "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return ModelFolder.open(path)


def test_the_template_tells_the_parsers(folder: ModelFolder) -> None:
    assert ServedModel.load(folder).parsers == ("qwen3", "hermes")


@pytest.mark.parametrize("template", [CHATML, None])
def test_a_template_without_structure_has_none(tmp_path: Path, template: str | None) -> None:
    model = ServedModel.load(folder_with(tmp_path, template))
    assert model.parsers == (None, None)
    assert (model.prompts is None) == (template is None)


def test_a_parser_can_be_named_and_switched_off(folder: ModelFolder) -> None:
    model = ServedModel.load(folder, tool_call_parser="llama3_json", reasoning_parser="none")
    assert model.parsers == (None, "llama3_json")
    assert ServedModel.load(folder, tool_call_parser="none").parsers == ("qwen3", None)


def test_a_parser_there_is_not_is_a_config_error(folder: ModelFolder) -> None:
    with pytest.raises(ConfigError, match="tool call parser 'x'"):
        ServedModel.load(folder, tool_call_parser="x")
    with pytest.raises(ConfigError, match="reasoning parser 'x'"):
        ServedModel.load(folder, reasoning_parser="x")
