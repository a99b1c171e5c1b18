"""The demo model writes what transformers writes, token for token."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import transformers
from native_rig import Sequence_, open_runner, sampling
from tokenizers import Tokenizer

from reference_model import demo_model_folder, greedy_choices, reference_model
from splitserve.engine.native import NativeRunner
from splitserve.ids import RequestId

pytestmark = pytest.mark.model

CHUNK = 512
NEW_TOKENS = 16
QUESTION = "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = {
    "one token": "The",
    "chat": QUESTION,
    "two chunks": "The old lighthouse keeper wrote in his log every evening. " * 60 + "Then",
}


@pytest.fixture(scope="module")
def folder() -> Path:
    return demo_model_folder()


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[NativeRunner]:
    made = open_runner(folder, block_size=16, kv_cache_memory_bytes=1 << 28)
    yield made
    made.close()


@pytest.fixture(scope="module")
def reference(folder: Path) -> transformers.PreTrainedModel:
    return reference_model(folder)


def generate(runner: NativeRunner, prompt: list[int], blocks: list[int]) -> list[int]:
    sequence = Sequence_(RequestId("a"), list(prompt), blocks)
    while len(sequence.outputs) < NEW_TOKENS:
        count = min(CHUNK, len(sequence.tokens) - sequence.computed)
        ends = sequence.computed + count == len(sequence.tokens)
        runner.launch([sequence.row(count, sampling() if ends else None)], None)
        for sampled in runner.collect():
            sequence.outputs.append(sampled.token_id)
            sequence.tokens.append(sampled.token_id)
    return sequence.outputs


@pytest.mark.parametrize("name", PROMPTS)
def test_greedy_tokens_are_those_of_transformers(
    folder: Path, runner: NativeRunner, reference: transformers.PreTrainedModel, name: str
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tokenizer.encode(PROMPTS[name]).ids
    blocks = list(range(200, 0, -2))
    found = generate(runner, prompt, blocks)
    assert found == greedy_choices(reference, prompt, found)


def test_it_answers_in_words(folder: Path, runner: NativeRunner) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tokenizer.encode(
        "<|im_start|>user\nCapital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "Paris" in tokenizer.decode(generate(runner, prompt.ids, list(range(8))))
