"""The demo model writes what transformers writes, token for token."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import transformers
from native_rig import Sequence_, open_runner, sampling
from tokenizers import Tokenizer
from transformers.initialization import no_init_weights

from splitserve.engine.models.gguf import GGUFWeights
from splitserve.engine.native import NativeRunner
from splitserve.ids import RequestId
from splitserve.modelstore.resolve import cache_dir

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
    path = cache_dir() / "models" / "smollm2"
    if not (path / "model.gguf").is_file():
        pytest.skip(f"no demo model in {path}: run 'make setup'")
    return path


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[NativeRunner]:
    made = open_runner(folder, block_size=16, kv_cache_memory_bytes=1 << 28)
    yield made
    made.close()


@pytest.fixture(scope="module")
def reference(folder: Path) -> transformers.PreTrainedModel:
    """transformers' model with the weights of the GGUF file."""
    config = transformers.LlamaConfig(**json.loads((folder / "config.json").read_text()))
    weights = GGUFWeights(folder / "model.gguf", config.head_dim)
    with no_init_weights():
        model = transformers.LlamaForCausalLM(config).eval()
    model.tie_weights()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.read(name, tuple(parameter.shape), torch.float32))
    return model


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
    # One pass over prompt and answer: each token must be the likeliest after those before it.
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + found])).logits[0]
    assert found == logits[len(prompt) - 1 : -1].argmax(-1).tolist()


def test_it_answers_in_words(folder: Path, runner: NativeRunner) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tokenizer.encode(
        "<|im_start|>user\nCapital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "Paris" in tokenizer.decode(generate(runner, prompt.ids, list(range(8))))
