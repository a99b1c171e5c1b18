"""Fetches a model folder from the Hugging Face hub, into the hub's own cache."""

from pathlib import Path
from typing import Any, Final

from splitserve.errors import ConfigError, UnavailableError
from splitserve.loading import load
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.progress import Progress

_WANTED: Final = ["*.json", "*.jinja", "*.safetensors"]
# Other frameworks' copies lie in folders; Mistral's own copy is called consolidated.
_UNWANTED: Final = ["*/*", "consolidated*"]


def snapshot(repository: str, *, progress: Progress) -> ModelFolder:
    """The newest snapshot of ``org/name``: what is cached already is not fetched again.

    Raises UnavailableError when it cannot be fetched and ConfigError when it is not a model in
    safetensors form.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    progress.stage(f"downloading {repository} from the hub", None)
    try:
        path = snapshot_download(
            repository,
            allow_patterns=_WANTED,
            ignore_patterns=_UNWANTED,
            tqdm_class=_bar_class(progress),
        )
    except HFValidationError as error:
        raise ConfigError(f"{repository!r} is no hub id: write org/name") from error
    except HfHubHTTPError as error:
        raise UnavailableError(_refusal(repository, error.response.status_code)) from error
    except _network_errors() as error:
        raise UnavailableError(
            f"cannot fetch {repository} from the hub ({_first_line(error)}): connect and run "
            "again, or give a model folder or GGUF file"
        ) from error
    progress.done()
    folder = ModelFolder.open(Path(path))
    if folder.format == "none":
        raise ConfigError(
            f"{repository} holds no safetensors weights: give another, or a .gguf file's path"
        )
    return folder


def _refusal(repository: str, status: int) -> str:
    if status in (401, 403, 404):
        return (
            f"the hub has no {repository} for you (HTTP {status}): check the name; for a gated "
            "or private model set HF_TOKEN"
        )
    return f"the hub answered HTTP {status} for {repository}: try again later"


def _network_errors() -> tuple[type[Exception], ...]:
    """What a fetch can end with besides the hub's own answer.

    The client does not translate the errors of its HTTP library, and which library that is depends
    on the client's version; the client's own error for a bad answer derives from it.
    """
    from huggingface_hub.errors import HfHubHTTPError

    return tuple(kind for kind in HfHubHTTPError.__bases__ if issubclass(kind, Exception))


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return str(cause).partition("\n")[0] or type(cause).__name__


def _bar_class(progress: Progress) -> type[Any]:
    """A stand-in for the hub client's bars that reports bytes to ``progress``.

    The client counts the same bytes in several bars (received, written); the fastest is shown.
    """
    base: Any = load("tqdm.auto:tqdm")
    shown = [0.0]

    class Bar(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._is_bytes = kwargs.get("unit") == "B"
            self._count = float(kwargs.get("initial") or 0)
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            if self._is_bytes:
                self._count += n or 0
                progress.advance(max(0, int(self._count - shown[0])))
                shown[0] = max(shown[0], self._count)

    return Bar
