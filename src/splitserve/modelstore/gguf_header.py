"""Reads what stands before the weights in a GGUF file: metadata and the table of tensors.

The layout is the GGUF specification's (ggml, docs/gguf.md), versions 2 and 3, little endian. The
``gguf`` package can do this too, but takes seconds for a vocabulary of 50,000 tokens because it
makes an array of every string; a worker that starts should not wait for that.
"""

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from splitserve.errors import ConfigError

Scalar = str | int | float | bool
Value: TypeAlias = "Scalar | list[Value]"

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT: Final = 32
_STRING: Final = 8
_ARRAY: Final = 9
_FIXED: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor. ``shape`` is rows first, as torch has it (the file has it the other way round).

    ``ggml_type`` is the number of its block type; ``offset`` counts bytes from the file's start.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Metadata by key (``general.architecture``) and tensors by name (``blk.0.attn_q.weight``)."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]

    def text(self, key: str) -> str | None:
        """The string under ``key``; None when there is none."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def integer(self, key: str) -> int | None:
        """The whole number under ``key``; a list counts as its value when all entries agree."""
        value = self.metadata.get(key)
        if isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def number(self, key: str) -> float | None:
        """The number under ``key``, whole or not."""
        value = self.metadata.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)

    def flag(self, key: str) -> bool | None:
        """The truth value under ``key``; None when the file does not say."""
        value = self.metadata.get(key)
        return value if isinstance(value, bool) else None

    def strings(self, key: str) -> list[str]:
        """The list of strings under ``key``; empty when there is none."""
        value = self.metadata.get(key)
        return (
            [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []
        )

    def numbers(self, key: str) -> list[float]:
        """The list of numbers under ``key``; empty when there is none."""
        value = self.metadata.get(key)
        if not isinstance(value, list):
            return []
        return [entry for entry in value if isinstance(entry, int | float)]


def read_header(path: Path) -> GGUFHeader:
    """Reads metadata and tensor table; touches no weights.

    Raises ConfigError when the file cannot be read, is no GGUF file or is cut short.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ConfigError(f"{path} is no GGUF file: give one, or a Hugging Face folder")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(path, _Cursor(data, len(_MAGIC)))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise ConfigError(
            f"{path} is cut short or damaged ({error}): get the file again"
        ) from error


class _Cursor:
    """A place in the file that moves on with each read. Raises struct.error past the end."""

    def __init__(self, data: mmap.mmap, position: int) -> None:
        self._data = data
        self.position = position

    def fixed(self, code: str, count: int = 1) -> tuple[Scalar, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack_from(self._data, self.position)
        self.position += layout.size
        return values

    def whole(self, code: str) -> int:
        return int(self.fixed(code)[0])

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        data, position = self._data, self.position
        length_at: Callable[[mmap.mmap, int], tuple[int]] = struct.Struct("<Q").unpack_from
        found: list[str] = []
        for _ in range(count):
            start = position + 8
            position = start + length_at(data, position)[0]
            if position > len(data):
                raise struct.error("a string reaches past the end of the file")
            found.append(data[start:position].decode("utf-8"))
        self.position = position
        return found

    def value(self, kind: int) -> Value:
        if kind == _STRING:
            return self.string()
        if kind in _FIXED:
            return self.fixed(_FIXED[kind])[0]
        if kind != _ARRAY:
            raise struct.error(f"unknown value type {kind}")
        inner, count = self.whole("I"), self.whole("Q")
        if inner == _STRING:
            return list(self.strings(count))
        if inner in _FIXED:
            return list(self.fixed(_FIXED[inner], count))
        return [self.value(inner) for _ in range(count)]


def _parse(path: Path, cursor: _Cursor) -> GGUFHeader:
    version = cursor.whole("I")
    if version not in _VERSIONS:
        raise ConfigError(f"{path} is GGUF version {version}: convert it to version 3")
    tensor_count, value_count = cursor.whole("Q"), cursor.whole("Q")
    metadata: dict[str, Value] = {}
    for _ in range(value_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.whole("I"))
    tensors = [_tensor(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise struct.error(f"alignment {alignment!r}")
    start = -(-cursor.position // alignment) * alignment
    return GGUFHeader(
        path,
        metadata,
        {
            info.name: TensorInfo(info.name, info.shape, info.ggml_type, start + info.offset)
            for info in tensors
        },
    )


def _tensor(cursor: _Cursor) -> TensorInfo:
    name = cursor.string()
    dims = cursor.fixed("Q", cursor.whole("I"))
    ggml_type, offset = cursor.whole("I"), cursor.whole("Q")
    return TensorInfo(name, tuple(int(dim) for dim in reversed(dims)), ggml_type, offset)
