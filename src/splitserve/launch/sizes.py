"""Memory sizes as people write them: ``536870912``, ``512MiB``, ``1GiB``, ``1.5GB``."""

import re
from typing import Final

_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


class ByteSize(int):
    """A number of bytes that may be written with a unit."""


def parse_size(value: object) -> ByteSize:
    """``value`` (a whole number, or text with a unit) in bytes. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return ByteSize(value)
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    factor = _UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{value!r} is not a size; write bytes or a unit, as in 512MiB or 1GiB")
    return ByteSize(float(match[1]) * factor)


def format_size(nbytes: float) -> str:
    """For people: ``1.50 GiB``, ``22.5 KiB``, ``17 B``."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            value = nbytes / factor
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{nbytes:.0f} B"
