"""Small random models that the GPU's kernels have shapes for, and a runner driven by hand."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from splitserve.engine.api import PENDING, KVSink, Row, Sampled, SampleSpec
from splitserve.engine.config import EngineConfig, SchedulerConfig
from splitserve.ids import RequestId
from splitserve.protocol.sampling import SamplingParams

if TYPE_CHECKING:
    from splitserve.engine.cuda.runner import CudaRunner

VOCAB = 512
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 512,
    "intermediate_size": 768,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.05,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": None},
    "Qwen2": {"tie_word_embeddings": True},
    "Qwen3": {"head_dim": 128},
}
GREEDY = SamplingParams(seed=0, max_tokens=64, temperature=0.0)
ALL_SCORES = SamplingParams(seed=0, max_tokens=64, temperature=0.0, logprobs=VOCAB)


def save_model(family: str, path: Path) -> None:
    """Writes a random model of the family as a folder."""
    torch.manual_seed(7)
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **FAMILIES[family]})
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "bias")):
                parameter.normal_(1.0 if "norm" in name else 0.0, 0.3)
    model.to(torch.bfloat16).save_pretrained(path)


def reference(path: Path, tokens: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """transformers' log-probabilities ``[tokens, vocab]`` on the GPU, computed in ``dtype``."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).to("cuda:0")
    with torch.inference_mode():
        logits = model(torch.tensor([tokens], device="cuda:0")).logits[0]
    return logits.float().log_softmax(-1).cpu()


def open_runner(path: Path, **settings: Any) -> "CudaRunner":
    # Only where there is a GPU is there what this imports.
    from splitserve.engine.cuda.runner import CudaRunner

    defaults = {
        "dtype": "bfloat16",
        "device": "cuda:0",
        "kv_cache_memory_bytes": 64 << 20,
        "scheduler": SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=1024),
    }
    return CudaRunner(EngineConfig(str(path), **{**defaults, **settings}))


@dataclass
class Line:
    """One sequence: its prompt, its blocks in no order, and what was chosen for it."""

    name: str
    prompt: list[int]
    blocks: list[int]
    computed: int = 0
    output: list[int] = field(default_factory=list)

    def prompt_row(self, count: int, params: SamplingParams = GREEDY) -> Row:
        start, self.computed = self.computed, self.computed + count
        over = self.computed == len(self.prompt)
        spec = SampleSpec(params, 0) if over else None
        tokens = self.prompt[start : self.computed]
        return Row(RequestId(self.name), tokens, start, self.blocks, spec)

    def next_row(self, params: SamplingParams = GREEDY, follows: int | None = None) -> Row:
        """One token more: the last that was chosen, or the one that is still to be."""
        start, self.computed = self.computed, self.computed + 1
        token = self.output[-1] if follows is None else PENDING
        spec = SampleSpec(params, start + 1 - len(self.prompt))
        return Row(RequestId(self.name), [token], start, self.blocks, spec, follows)


def lines(runner: "CudaRunner", lengths: Sequence[int], seed: int = 0) -> list[Line]:
    """Random prompts in blocks scattered over the pool, with room for 64 tokens more."""
    draw = random.Random(seed)
    layout = runner.describe().layout
    free = draw.sample(range(layout.num_blocks), layout.num_blocks)
    made = []
    for number, length in enumerate(lengths):
        count = -(-(length + 64) // layout.block_size)
        blocks, free = free[:count], free[count:]
        prompt = [draw.randrange(3, VOCAB) for _ in range(length)]
        made.append(Line(f"r{seed}-{number}", prompt, blocks))
    return made


def step(runner: "CudaRunner", rows: Sequence[Row], sink: KVSink | None = None) -> list[Sampled]:
    runner.launch(rows, sink)
    return runner.collect()


def answer(runner: "CudaRunner", line: Line, count: int, chunk: int = 1024) -> list[int]:
    """Prompt in chunks, then ``count`` tokens, each launched after the one before is known."""
    while line.computed < len(line.prompt):
        found = step(runner, [line.prompt_row(min(chunk, len(line.prompt) - line.computed))])
    line.output.append(found[0].token_id)
    while len(line.output) < count:
        line.output.append(step(runner, [line.next_row()])[0].token_id)
    return line.output


def scores(found: Sampled) -> torch.Tensor:
    """Log-probabilities ``[vocab]`` of a row that asked for all of them."""
    assert found.logprob is not None
    values = torch.empty(VOCAB)
    for token, logprob in found.logprob.top:
        values[token] = logprob
    return values
