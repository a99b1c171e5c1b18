"""transformers' model with the weights of the demo model's GGUF file: the reference in fp32."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import transformers
from transformers.initialization import no_init_weights

from splitserve.engine.models.gguf import GGUFWeights
from splitserve.modelstore.resolve import cache_dir


def demo_model_folder() -> Path:
    """Skips the test, visibly, where the demo model was not pulled."""
    path = cache_dir() / "models" / "smollm2"
    if not (path / "model.gguf").is_file():
        pytest.skip(f"no demo model in {path}: run 'make setup'")
    return path


def reference_model(folder: Path) -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(**json.loads((folder / "config.json").read_text()))
    weights = GGUFWeights(folder / "model.gguf", config.head_dim)
    with no_init_weights():
        model = transformers.LlamaForCausalLM(config).eval()
    model.tie_weights()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.read(name, tuple(parameter.shape), torch.float32))
    return model


def greedy_choices(
    model: transformers.PreTrainedModel, prompt: Sequence[int], answer: Sequence[int]
) -> list[int]:
    """What the model puts at each place of ``answer``, given all before it.

    Equal to ``answer`` exactly when ``answer`` is the greedy one.
    """
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return [int(token) for token in logits.argmax(-1)]
