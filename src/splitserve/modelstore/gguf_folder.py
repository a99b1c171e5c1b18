"""Makes a model folder in Hugging Face form from a GGUF file."""

import json
import math
from pathlib import Path
from typing import Any, Final

from splitserve.errors import ConfigError
from splitserve.modelstore.gguf_config import build_config
from splitserve.modelstore.gguf_header import GGUFHeader, read_header
from splitserve.modelstore.gguf_tokenizer import (
    build_tokenizer,
    build_tokenizer_config,
    end_token_ids,
)

FOLDER_VERSION: Final = 1
"""Changes when the files written here do, so that folders made before are made again."""


def write_folder(gguf: Path, target: Path) -> None:
    """Writes everything but the weights into the existing directory ``target``.

    That is config.json, generation_config.json, tokenizer.json and tokenizer_config.json. Raises
    ConfigError when ``gguf`` is damaged or describes a model that is not supported.
    """
    header = read_header(gguf)
    config = build_config(header)
    _check_complete(header)
    ends = end_token_ids(header)
    generation: dict[str, Any] = {
        "bos_token_id": config["bos_token_id"],
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "pad_token_id": config["pad_token_id"],
    }
    _write_json(target / "config.json", config)
    _write_json(target / "generation_config.json", generation)
    _write_json(target / "tokenizer_config.json", build_tokenizer_config(header))
    build_tokenizer(header).save(str(target / "tokenizer.json"), pretty=False)


def _check_complete(header: GGUFHeader) -> None:
    """A download that broke off leaves a good header and too few weights."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    size = header.path.stat().st_size
    for info in header.tensors.values():
        try:
            elements, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType(info.ggml_type)]
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"{header.path}: {info.name} has unknown type {info.ggml_type}: update gguf"
            ) from error
        if info.offset + math.prod(info.shape) // elements * nbytes > size:
            raise ConfigError(f"{header.path} is cut short: get the file again")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
