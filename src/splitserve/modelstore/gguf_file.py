"""A GGUF file that the user has, seen as a model folder."""

from pathlib import Path

from splitserve.errors import ConfigError, UnavailableError
from splitserve.modelstore.folder import ModelFolder, file_hash
from splitserve.modelstore.gguf_folder import FOLDER_VERSION, write_folder
from splitserve.modelstore.progress import Progress
from splitserve.modelstore.staging import put_in_place, staging


def folder_of_gguf(file: Path, *, cache: Path, progress: Progress) -> ModelFolder:
    """A folder under ``cache``, named by the file's content, with a link to the file as weights.

    Made once; made again when the file it links to has moved. Raises ConfigError for a file that
    cannot be read or used and UnavailableError when the folder cannot be written.
    """
    file = file.absolute()
    try:
        name = file_hash(file)[:16]
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    target = cache / "gguf" / f"{name}-{FOLDER_VERSION}" / file.stem
    try:
        if not _is_made(target):
            with staging(target, progress) as work:
                if not _is_made(target):
                    progress.stage("converting", None)
                    put_in_place(_make_folder(file, work), target)
    except OSError as error:
        raise UnavailableError(
            f"cannot write {target} ({error.strerror or error}): set "
            "SPLITSERVE_CACHE to a place with room"
        ) from error
    progress.done()
    return ModelFolder.open(target)


def _is_made(target: Path) -> bool:
    return (target / "model.gguf").exists()


def _make_folder(file: Path, work: Path) -> Path:
    folder = work / "folder"
    folder.mkdir()
    (folder / "model.gguf").symlink_to(file)
    write_folder(file, folder)
    return folder
