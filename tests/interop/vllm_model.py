"""The demo model as vLLM reads it, and vLLM itself."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from reference_model import demo_model_folder, reference_model
from splitserve.modelstore.resolve import cache_dir

PROGRAM = "SPLITSERVE_VLLM"
"""Names the vllm program, where it is not the one that ``make vllm`` installs."""

_INSTALLED = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "vllm"


def vllm_program() -> str:
    """Fails the test where there is none: a suite that skips itself proves nothing."""
    program = Path(os.environ.get(PROGRAM) or _INSTALLED)
    if not program.is_file():
        pytest.fail(f"no vLLM at {program}: run 'make vllm', or say in {PROGRAM} where it is")
    return str(program)


def model_folder() -> Path:
    """The demo model in safetensors, made once: vLLM's own reading of GGUF is not what is tested
    here."""
    folder = cache_dir() / "interop" / "smollm2"
    if not folder.is_dir():
        source = demo_model_folder()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            new = Path(made) / "smollm2"
            reference_model(source).save_pretrained(new)
            for file in source.glob("*.json"):
                shutil.copy(file, new / file.name)
            new.rename(folder)
    return folder
