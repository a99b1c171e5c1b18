"""A model on disk in Hugging Face form: what every other part of Splitserve reads of it."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from splitserve.errors import ConfigError

WeightFormat = Literal["gguf", "safetensors", "none"]

_EDGE_BYTES: Final = 1 << 20
_BF16_BYTES: Final = 2
_SPECIAL_TOKENS: Final = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Files of one model. ``weights`` is sorted; with format ``none`` there are none.

    Small files are read anew by each call: the folder keeps no copy of their contents.
    """

    path: Path
    weights: tuple[Path, ...]
    format: WeightFormat

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises ConfigError when config.json or a weight file that the index names is missing."""
        path = path.absolute()
        if not path.is_dir():
            raise ConfigError(f"{path} is no folder: give a model folder in Hugging Face form")
        _existing(path / "config.json", "give a model folder in Hugging Face form")
        safetensors = _safetensors(path)
        if safetensors:
            return cls(path, safetensors, "safetensors")
        gguf = _gguf(path)
        return cls(path, gguf, "gguf" if gguf else "none")

    @property
    def served_name(self) -> str:
        """What clients call the model: the folder's name, or ``org/name`` in the hub's cache."""
        snapshots = self.path.parent
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--"):
            return snapshots.parent.name.removeprefix("models--").replace("--", "/", 1)
        return self.path.name

    @property
    def tokenizer_path(self) -> Path:
        """tokenizer.json. Raises ConfigError when there is none."""
        return _existing(
            self.path / "tokenizer.json",
            "make one with transformers' AutoTokenizer.save_pretrained",
        )

    def config(self) -> dict[str, Any]:
        """config.json. Raises ConfigError when it is no JSON object."""
        return _read_object(self.path / "config.json")

    def generation_config(self) -> dict[str, Any]:
        """generation_config.json; empty when there is none."""
        return _read_optional(self.path / "generation_config.json")

    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end an answer: generation_config.json's, else config.json's; may be empty."""
        for source in (self.generation_config(), self.config()):
            value = source.get("eos_token_id")
            if isinstance(value, int):
                return (value,)
            if isinstance(value, list) and value:
                return tuple(int(entry) for entry in value)
        return ()

    def chat_template(self) -> str | None:
        """The Jinja text that turns messages into a prompt; None for a model without chat."""
        file = self.path / "chat_template.jinja"
        if file.is_file():
            return _read_text(file)
        value = self._tokenizer_config().get("chat_template")
        if isinstance(value, list):
            named = {entry.get("name"): entry.get("template") for entry in value}
            value = named.get("default")
        return value if isinstance(value, str) else None

    def special_tokens(self) -> dict[str, str]:
        """Text of bos_token, eos_token, pad_token and unk_token, where the model has them."""
        config = self._tokenizer_config()
        found: dict[str, str] = {}
        for name in _SPECIAL_TOKENS:
            value = config.get(name)
            if isinstance(value, dict):
                value = value.get("content")
            if isinstance(value, str):
                found[name] = value
        return found

    def add_bos_token(self) -> bool | None:
        """What tokenizer_config.json says; None when it is silent."""
        value = self._tokenizer_config().get("add_bos_token")
        return value if isinstance(value, bool) else None

    def max_model_len(self) -> int:
        """Tokens of prompt and answer together. Raises ConfigError when config.json is silent."""
        return _whole(self.path, self.config(), "max_position_embeddings")

    def kv_token_bytes(self, itemsize: int = _BF16_BYTES) -> int:
        """KV cache bytes of one token over all layers, K and V, ``itemsize`` bytes a number."""
        config = self.config()
        heads = _whole(self.path, config, "num_attention_heads")
        head_dim = config.get("head_dim") or _whole(self.path, config, "hidden_size") // heads
        layers = _whole(self.path, config, "num_hidden_layers")
        return 2 * layers * self.num_kv_heads() * int(head_dim) * itemsize

    def num_kv_heads(self) -> int:
        """Of each layer. Raises ConfigError when config.json is silent."""
        config = self.config()
        kv_heads = config.get("num_key_value_heads")
        return int(kv_heads or _whole(self.path, config, "num_attention_heads"))

    def weight_bytes(self) -> int:
        """Size of the weight files together."""
        return sum(path.stat().st_size for path in self.weights)

    def content_hash(self) -> str:
        """Names configuration and weights: SHA-256 in hex, the same wherever the folder lies.

        Of each weight file it reads name, size and first and last MiB, so that 15 GB take
        milliseconds.
        """
        digest = hashlib.sha256((self.path / "config.json").read_bytes())
        for file in self.weights:
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
            digest.update(_edges(file))
        return digest.hexdigest()

    def tokenizer_hash(self) -> str:
        """SHA-256 of tokenizer.json, in hex. Raises ConfigError when there is none."""
        return hashlib.sha256(self.tokenizer_path.read_bytes()).hexdigest()

    def template_hash(self) -> str:
        """SHA-256 of the chat template, in hex; that of nothing when the model has none."""
        return hashlib.sha256((self.chat_template() or "").encode()).hexdigest()

    def _tokenizer_config(self) -> dict[str, Any]:
        return _read_optional(self.path / "tokenizer_config.json")


def file_hash(file: Path) -> str:
    """Names one large file by its size and its first and last MiB: SHA-256 in hex."""
    digest = hashlib.sha256(f"{file.stat().st_size}\0".encode())
    digest.update(_edges(file))
    return digest.hexdigest()


def _edges(file: Path) -> bytes:
    with file.open("rb") as stream:
        first = stream.read(_EDGE_BYTES)
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _EDGE_BYTES))
        return first + stream.read(_EDGE_BYTES)


def _safetensors(path: Path) -> tuple[Path, ...]:
    # With an index only its files count: some repositories hold the same weights twice.
    index = path / "model.safetensors.index.json"
    if index.is_file():
        weight_map = _read_object(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ConfigError(f"{index} has no weight_map: get the folder again")
        names = sorted({str(name) for name in weight_map.values()})
        return tuple(_existing(path / name, f"{index.name} names it") for name in names)
    single = path / "model.safetensors"
    return (single,) if single.is_file() else tuple(sorted(path.glob("*.safetensors")))


def _gguf(path: Path) -> tuple[Path, ...]:
    single = path / "model.gguf"
    if single.is_symlink() and not single.exists():
        raise ConfigError(f"{single} points to {single.readlink()}, which is gone: put it back")
    return (single,) if single.is_file() else ()


def _existing(file: Path, cure: str) -> Path:
    if not file.is_file():
        raise ConfigError(f"{file} is missing: {cure}")
    return file


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: get the folder again") from error


def _read_object(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(_read_text(file))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file} is not JSON ({error}): get the folder again") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{file} is not a JSON object: get the folder again")
    return value


def _read_optional(file: Path) -> dict[str, Any]:
    return _read_object(file) if file.is_file() else {}


def _whole(path: Path, config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"{path / 'config.json'} lacks {key}: add it, a whole number above 0")
    return value
