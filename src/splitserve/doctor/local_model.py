"""A model as far as it is on this machine already: a doctor fetches nothing."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from splitserve.doctor.machine import hub_cache
from splitserve.errors import ConfigError
from splitserve.launch.facts import facts_of
from splitserve.launch.plan import ModelFacts
from splitserve.launch.topology import ModelAsked
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.known import KNOWN
from splitserve.modelstore.resolve import cache_dir, resolve

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][^/\s]*/[^/\s]+")


def local_facts(asked: ModelAsked, environ: Mapping[str, str] = os.environ) -> ModelFacts | None:
    """None for a model that would have to be fetched. Raises ConfigError for one that cannot be
    used and for a name that is none."""
    folder = local_folder(asked.name, environ)
    return None if folder is None else facts_of(asked, folder)


def local_folder(name: str, environ: Mapping[str, str] = os.environ) -> ModelFolder | None:
    """As ``modelstore.resolve``, without fetching."""
    path = Path(name).expanduser()
    if path.exists() or not (name in KNOWN or _HUB_ID.fullmatch(name)):
        return resolve(name)
    kept = cache_dir(environ) / "models" / name if name in KNOWN else _snapshot(name, environ)
    if kept is None or not (kept / "config.json").is_file():
        return None
    try:
        return ModelFolder.open(kept)
    except ConfigError:
        # Fetched in part: what is lacking is brought at the start.
        return None


def _snapshot(repository: str, environ: Mapping[str, str]) -> Path | None:
    """Where the hub's client has its newest copy."""
    home = hub_cache(environ) / f"models--{repository.replace('/', '--')}"
    try:
        commit = (home / "refs" / "main").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return home / "snapshots" / commit if commit else None
