import json
from pathlib import Path

import numpy as np
import pytest
from gguf_samples import HIDDEN, byte_level_vocabulary, sentencepiece_vocabulary, write_gguf
from text_samples import varied_texts
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from splitserve.errors import ConfigError
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.gguf_folder import write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tiny"
    made.mkdir()
    write_folder(write_gguf(made / "model.gguf"), made)
    return made


def test_a_gguf_file_becomes_a_folder_that_opens(folder: Path) -> None:
    model = ModelFolder.open(folder)

    assert model.format == "gguf"
    assert model.config()["hidden_size"] == HIDDEN
    assert model.eos_token_ids() == (1, 0)
    assert model.special_tokens()["eos_token"] == "<|im_end|>"
    assert model.add_bos_token() is False


def test_transformers_reads_the_folder(folder: Path) -> None:
    assert AutoConfig.from_pretrained(folder).hidden_size == HIDDEN
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for kind in (AutoTokenizer, PreTrainedTokenizerFast):
        read = kind.from_pretrained(folder)
        assert read.eos_token == "<|im_end|>"
        for text in varied_texts(50, special=("<|im_end|>", "<think>")):
            assert read(text)["input_ids"] == plain.encode(text).ids


def test_a_sentencepiece_folder_reads_the_same_everywhere(tmp_path: Path) -> None:
    write_folder(
        write_gguf(tmp_path / "model.gguf", vocabulary=sentencepiece_vocabulary()), tmp_path
    )
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    read = PreTrainedTokenizerFast.from_pretrained(tmp_path)

    for text in varied_texts(50):
        assert read(text)["input_ids"] == plain.encode(text).ids


def test_one_end_id_is_written_as_a_number(tmp_path: Path) -> None:
    write_folder(
        write_gguf(tmp_path / "model.gguf", vocabulary=sentencepiece_vocabulary()), tmp_path
    )

    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == 2


def test_rows_beyond_the_tokens_count_as_vocabulary(tmp_path: Path) -> None:
    # What some converters do: an embedding padded to a round size.
    path = write_gguf(
        tmp_path / "model.gguf",
        vocabulary=byte_level_vocabulary(),
        dtype=np.float16,
        padded_rows=64,
    )
    write_folder(path, tmp_path)

    tokens = len(byte_level_vocabulary().tokens)
    assert ModelFolder.open(tmp_path).config()["vocab_size"] == tokens + 64


def test_a_file_with_too_few_weights_is_refused_and_nothing_written(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf")
    content = path.read_bytes()
    path.write_bytes(content[:-64])
    target = tmp_path / "target"
    target.mkdir()

    with pytest.raises(ConfigError, match="is cut short: get the file again"):
        write_folder(path, target)

    assert list(target.iterdir()) == []
