"""Tiny random models, and rows built by hand: the runner's side of a step without a scheduler."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from splitserve.engine.api import Row, SampleSpec
from splitserve.engine.config import EngineConfig
from splitserve.engine.native import NativeRunner
from splitserve.ids import RequestId
from splitserve.protocol.sampling import SamplingParams

VOCAB = 128
BLOCK = 4
TINY = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}

Saved = tuple[Path, transformers.PreTrainedModel]
"""A model's folder, and transformers' own."""

Make = Callable[[], transformers.PreTrainedModel]


def _causal(family: str, **settings: Any) -> Make:
    def make() -> transformers.PreTrainedModel:
        torch.manual_seed(7)
        config = getattr(transformers, f"{family}Config")(**{**TINY, **settings})
        model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Ones and zeros, which transformers starts with, would hide a swapped vector.
                if name.endswith(("norm.weight", "bias")):
                    parameter.normal_(1.0 if "norm" in name else 0.0, 0.3)
        return model

    return make


FAMILIES: dict[str, Make] = {
    "llama": _causal("Llama", tie_word_embeddings=False),
    "llama-tied": _causal("Llama", tie_word_embeddings=True),
    "llama-llama3": _causal("Llama", rope_parameters=LLAMA3),
    "llama-yarn": _causal("Llama", rope_parameters=YARN),
    "llama-bias": _causal("Llama", attention_bias=True, num_key_value_heads=4),
    "mistral": _causal("Mistral", head_dim=24, sliding_window=None),
    "qwen2": _causal("Qwen2", tie_word_embeddings=True),
    "qwen3": _causal("Qwen3", head_dim=32),
}


def save(make: Make, path: Path) -> transformers.PreTrainedModel:
    """Writes the model as a folder and returns it."""
    model = make()
    model.save_pretrained(path)
    return model


def open_runner(path: Path, **settings: Any) -> NativeRunner:
    defaults = {"dtype": "float32", "block_size": BLOCK, "kv_cache_memory_bytes": 1 << 22}
    return NativeRunner(EngineConfig(str(path), **{**defaults, **settings}))


def sampling(**settings: Any) -> SamplingParams:
    return SamplingParams(**{"seed": 1, "max_tokens": 16, "temperature": 0.0, **settings})


# Every token's log-probability, so that a step shows all of its scores.
ALL_SCORES = sampling(logprobs=VOCAB)


@dataclass
class Sequence_:
    """A sequence's tokens and the blocks it lies in, in no order."""

    request_id: RequestId
    tokens: list[int]
    blocks: list[int]
    computed: int = 0
    outputs: list[int] = field(default_factory=list)

    def row(self, count: int, params: SamplingParams | None = ALL_SCORES) -> Row:
        """The next ``count`` tokens; ``params`` None leaves them unsampled."""
        start, self.computed = self.computed, self.computed + count
        spec = SampleSpec(params, position=len(self.outputs)) if params else None
        return Row(self.request_id, self.tokens[start : self.computed], start, self.blocks, spec)


def sequences(runner: NativeRunner, lengths: Sequence[int], seed: int = 0) -> list[Sequence_]:
    """Random prompts in blocks scattered over the pool, with room for 32 tokens more."""
    draw = random.Random(seed)
    layout = runner.describe().layout
    free = draw.sample(range(layout.num_blocks), layout.num_blocks)
    made = []
    for number, length in enumerate(lengths):
        count = (length + 32) // layout.block_size + 1
        blocks, free = free[:count], free[count:]
        tokens = [draw.randrange(VOCAB) for _ in range(length)]
        made.append(Sequence_(RequestId(f"r{number}"), tokens, blocks))
    return made


def scores(runner: NativeRunner, rows: Sequence[Row]) -> list[torch.Tensor]:
    """Log-probabilities ``[vocab]`` of each sampled row of one step."""
    runner.launch(rows, None)
    found = []
    for sampled in runner.collect():
        values = torch.empty(VOCAB)
        for token, logprob in sampled.logprob.top:
            values[token] = logprob
        found.append(values)
    return found


def reference(model: transformers.PreTrainedModel, tokens: Sequence[int]) -> torch.Tensor:
    """transformers' log-probabilities ``[tokens, vocab]``."""
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0].float().log_softmax(-1)
