"""What GPU workers of flow tests run."""

import json
from pathlib import Path
from typing import Final

import torch
from tiny_model import make_model_folder

FLAGS: Final = (
    *("--load-format", "dummy", "--kv-cache-memory-bytes", "256MiB"),
    *("--max-num-seqs", "16", "--max-num-batched-tokens", "256"),
)


def make_wide_model(path: Path) -> Path:
    """A model of a shape that the kernels have, without weights."""
    folder = make_model_folder(path)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def two_gpus() -> tuple[str, str]:
    """One for each worker, where there are two."""
    return "cuda:0", "cuda:1" if torch.cuda.device_count() > 1 else "cuda:0"
