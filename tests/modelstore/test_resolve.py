import os
import subprocess
import sys
from pathlib import Path

import pytest
from gguf_samples import write_gguf
from recorded_progress import RecordedProgress

from splitserve.errors import ConfigError
from splitserve.modelstore import hub, pull
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.progress import Progress
from splitserve.modelstore.resolve import cache_dir, resolve


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPLITSERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def make_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_the_cache_is_where_the_environment_says() -> None:
    own = {"SPLITSERVE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}

    assert cache_dir(own) == Path("/a")
    assert cache_dir({"XDG_CACHE_HOME": "/b"}) == Path("/b/splitserve")
    assert cache_dir({}) == Path.home() / ".cache" / "splitserve"
    assert cache_dir({"SPLITSERVE_CACHE": ""}) == Path.home() / ".cache" / "splitserve"
    assert cache_dir({"SPLITSERVE_CACHE": "~/x"}) == Path.home() / "x"


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    path = make_folder(tmp_path / "mine")

    assert resolve(str(path)).path == path


def test_a_folder_comes_before_a_known_name(tmp_path: Path) -> None:
    path = make_folder(tmp_path / "smollm2")

    assert resolve("smollm2").path == path


def test_a_folder_comes_before_a_hub_id(tmp_path: Path) -> None:
    path = make_folder(tmp_path / "org" / "name")

    assert resolve("org/name").path == path


def test_a_known_name_is_pulled_into_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ModelFolder.open(make_folder(tmp_path / "pulled"))

    def fake_pull(name: str, *, cache: Path, progress: Progress) -> ModelFolder:
        asked.append((name, cache))
        return made

    asked: list[tuple[str, Path]] = []
    monkeypatch.setattr(pull, "pull", fake_pull)

    assert resolve("smollm2") == made
    assert asked == [("smollm2", cache)]


def test_another_name_with_one_slash_is_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ModelFolder.open(make_folder(tmp_path / "fetched"))

    def fake_snapshot(repository: str, *, progress: Progress) -> ModelFolder:
        asked.append(repository)
        return made

    asked: list[str] = []
    monkeypatch.setattr(hub, "snapshot", fake_snapshot)

    assert resolve("Qwen/Qwen2.5-0.5B-Instruct") == made
    assert asked == ["Qwen/Qwen2.5-0.5B-Instruct"]


@pytest.mark.parametrize("name", ["nope", "/no/such/path", "a/b/c", "model.gguf", "../x"])
def test_anything_else_is_told_the_forms_and_the_known_names(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(name)

    assert str(caught.value) == (
        f"no model {name!r}: give a known name (smollm2), a Hugging Face folder, a .gguf file or a "
        "hub id (org/name)"
    )


def test_a_gguf_file_gets_a_folder_with_a_link_to_it(tmp_path: Path, cache: Path) -> None:
    file = write_gguf(tmp_path / "My-Model.Q8_0.gguf")
    progress = RecordedProgress()

    folder = resolve("My-Model.Q8_0.gguf", progress=progress)

    assert folder.path.is_relative_to(cache / "gguf")
    assert folder.served_name == "My-Model.Q8_0"
    assert folder.weights[0].resolve() == file
    assert progress.names == ["converting"]


def test_a_gguf_file_is_converted_once(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    first = resolve(str(file))
    progress = RecordedProgress()

    assert resolve(str(file), progress=progress) == first
    assert progress.stages == []


def test_a_gguf_file_with_other_contents_gets_another_folder(tmp_path: Path) -> None:
    first = resolve(str(write_gguf(tmp_path / "m.gguf")))
    second = resolve(str(write_gguf(tmp_path / "m.gguf", tied=False)))

    assert first.path != second.path
    assert second.config()["tie_word_embeddings"] is False


def test_a_gguf_file_that_moved_is_linked_anew(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf")
    resolve(str(file))
    (tmp_path / "sub").mkdir()
    moved = file.rename(tmp_path / "sub" / "m.gguf")

    assert resolve(str(moved)).weights[0].resolve() == moved


def test_a_file_that_is_no_gguf_leaves_nothing_behind(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(100))

    with pytest.raises(ConfigError, match="is no GGUF file: give one, or a Hugging Face folder"):
        resolve("model.safetensors")

    assert [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_importing_resolve_loads_nothing_heavy() -> None:
    script = (
        "import sys; import splitserve.modelstore.resolve; "
        "heavy = {'rich', 'huggingface_hub', 'gguf', 'tokenizers', 'numpy', 'torch', 'zipfile'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )

    assert answer.stdout.strip() == "[]"
