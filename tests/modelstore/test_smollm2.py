"""The demo model against transformers' own reading of the same file."""

from pathlib import Path

import pytest
from text_samples import varied_texts
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.resolve import cache_dir

pytestmark = pytest.mark.model

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>", "<repo_name>")


@pytest.fixture(scope="module")
def folder() -> ModelFolder:
    path = cache_dir() / "models" / "smollm2"
    if not (path / "model.gguf").is_file():
        pytest.skip(f"no demo model in {path}: run 'make setup'")
    return ModelFolder.open(path)


@pytest.fixture(scope="module")
def only_gguf(folder: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without our files, so that transformers has nothing but the GGUF file to read."""
    path = tmp_path_factory.mktemp("gguf")
    (path / "model.gguf").symlink_to(folder.weights[0])
    return path


@pytest.fixture(scope="module")
def ours(folder: ModelFolder) -> Tokenizer:
    return Tokenizer.from_file(str(folder.tokenizer_path))


def test_the_config_has_the_values_that_transformers_reads(
    folder: ModelFolder, only_gguf: Path
) -> None:
    ours = AutoConfig.from_pretrained(folder.path)
    theirs = AutoConfig.from_pretrained(only_gguf, gguf_file="model.gguf")

    for name in (
        "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
        "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
    ):  # fmt: skip
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.rms_norm_eps == pytest.approx(theirs.rms_norm_eps)
    assert ours.rope_parameters["rope_theta"] == theirs.rope_parameters["rope_theta"]


def test_ids_equal_transformers_reading_of_the_same_file(ours: Tokenizer, only_gguf: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(only_gguf, gguf_file="model.gguf")
    texts = varied_texts(400, special=SPECIAL)

    for text in texts:
        plain = "".join(char for char in text if not char.isnumeric())
        assert ours.encode(plain).ids == theirs(plain)["input_ids"], plain

    # transformers does not know the name "smollm" and forgets that digits stand apart: give it the
    # steps that the model's own tokenizer.json has.
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    for text in texts:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("The capital of France is", [504, 3575, 282, 4649, 314]),
        ("Hello world! 123", [19556, 905, 17, 216, 33, 34, 35]),
        ("  multiple   spaces", [216, 2701, 256, 5600]),
    ],
)
def test_well_known_strings_keep_their_ids(ours: Tokenizer, text: str, ids: list[int]) -> None:
    assert ours.encode(text).ids == ids


def test_transformers_reads_the_folder_with_the_same_ids(
    folder: ModelFolder, ours: Tokenizer
) -> None:
    read = PreTrainedTokenizerFast.from_pretrained(folder.path)

    for text in varied_texts(200, special=SPECIAL, seed=2):
        assert read(text)["input_ids"] == ours.encode(text).ids, text
        assert ours.decode(ours.encode(text).ids, skip_special_tokens=False) == text


def test_the_folder_says_what_serving_needs(folder: ModelFolder) -> None:
    assert folder.format == "gguf"
    assert folder.served_name == "smollm2"
    assert folder.eos_token_ids() == (2, 0)
    assert folder.special_tokens()["eos_token"] == "<|im_end|>"
    assert "<|im_start|>assistant" in (folder.chat_template() or "")
    assert folder.max_model_len() == 8192
    assert folder.kv_token_bytes() == 2 * 30 * 3 * 64 * 2
