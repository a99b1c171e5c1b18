"""From what the user wrote after ``serve`` to a model folder."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from splitserve.errors import ConfigError
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.known import KNOWN
from splitserve.modelstore.progress import Progress, Silent

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where models are kept: $SPLITSERVE_CACHE, else $XDG_CACHE_HOME/splitserve, else ~/.cache."""
    if own := environ.get("SPLITSERVE_CACHE"):
        return Path(own).expanduser().absolute()
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser().absolute() / "splitserve"
    return Path.home() / ".cache" / "splitserve"


def resolve(model: str, *, progress: Progress | None = None) -> ModelFolder:
    """The folder of ``model``, tried as folder, GGUF file, known name and hub id, in this order.

    Fetches what is not here yet. Raises ConfigError (unknown, unreadable, not supported) or
    UnavailableError (cannot be fetched).
    """
    shown = progress or Silent()
    path = Path(model).expanduser()
    if path.is_dir():
        return ModelFolder.open(path)
    if path.is_file():
        from splitserve.modelstore.gguf_file import folder_of_gguf

        return folder_of_gguf(path, cache=cache_dir(), progress=shown)
    if model in KNOWN:
        from splitserve.modelstore.pull import pull

        return pull(model, cache=cache_dir(), progress=shown)
    if _HUB_ID.fullmatch(model):
        from splitserve.modelstore.hub import snapshot

        return snapshot(model, progress=shown)
    raise ConfigError(
        f"no model {model!r}: give a known name ({', '.join(KNOWN)}), a Hugging Face folder, a "
        ".gguf file or a hub id (org/name)"
    )
