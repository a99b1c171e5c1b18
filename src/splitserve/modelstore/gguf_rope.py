"""How a GGUF file says that rotary positions are stretched, in transformers' words."""

import math
import mmap
import struct
from typing import Any, Final

from splitserve.errors import ConfigError
from splitserve.modelstore.gguf_header import GGUFHeader, TensorInfo

_F32: Final = 0
_LLAMA3_LOW: Final = 1.0
_LLAMA3_HIGH: Final = 4.0
_LLAMA3_ORIGINAL: Final = 8192
_FACTOR_TOLERANCE: Final = 1e-3


def rope_scaling(
    header: GGUFHeader, arch: str, head_dim: int, context: int
) -> dict[str, Any] | None:
    """The ``rope_scaling`` of config.json; None when positions are not stretched.

    Raises ConfigError for a kind that is not known here: its answers would be silently wrong.
    """
    factors = header.tensors.get("rope_freqs.weight")
    if factors is not None:
        return _llama3(header, factors, arch, head_dim)
    kind = header.text(f"{arch}.rope.scaling.type")
    factor = header.number(f"{arch}.rope.scaling.factor")
    if kind in (None, "none") or factor in (None, 0.0, 1.0):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        original = header.integer(f"{arch}.rope.scaling.original_context_length")
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original or context,
        }
    raise ConfigError(f"{header.path}: rope scaling {kind!r} is not supported")


def _llama3(header: GGUFHeader, info: TensorInfo, arch: str, head_dim: int) -> dict[str, Any]:
    """Llama 3.1's scaling is stored as one divisor a frequency; find the settings behind them.

    Only ``factor`` ever differs between published models, and it is the largest divisor; the rest
    is checked by computing the divisors again.
    """
    found = _read_floats(header, info)
    theta = header.number(f"{arch}.rope.freq_base") or 10000.0
    factor = round(max(found), 3)
    expected = llama3_divisors(head_dim, theta, factor)
    if len(found) != len(expected) or any(
        abs(a - b) > _FACTOR_TOLERANCE * b for a, b in zip(found, expected, strict=True)
    ):
        raise ConfigError(
            f"{header.path}: rope_freqs.weight is not Llama 3's scaling: give a Hugging Face folder"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": _LLAMA3_ORIGINAL,
    }


def llama3_divisors(head_dim: int, theta: float, factor: float) -> list[float]:
    """What each of ``head_dim / 2`` frequencies is divided by.

    Meta's rule for Llama 3.1: long waves are stretched by ``factor``, short ones stay, those
    between are blended.
    """
    divisors = []
    for index in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (index / head_dim)
        if wavelength < _LLAMA3_ORIGINAL / _LLAMA3_HIGH:
            divisors.append(1.0)
        elif wavelength > _LLAMA3_ORIGINAL / _LLAMA3_LOW:
            divisors.append(factor)
        else:
            smooth = (_LLAMA3_ORIGINAL / wavelength - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW)
            divisors.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return divisors


def _read_floats(header: GGUFHeader, info: TensorInfo) -> tuple[float, ...]:
    count = math.prod(info.shape)
    if info.ggml_type != _F32 or count < 1:
        raise ConfigError(f"{header.path}: {info.name} is not in float32: convert the model again")
    with (
        header.path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        try:
            return struct.unpack_from(f"<{count}f", data, info.offset)
        except struct.error as error:
            raise ConfigError(f"{header.path} is cut short: get the file again") from error
