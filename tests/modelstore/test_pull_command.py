import io
from pathlib import Path

import pytest
from gguf_samples import write_gguf
from rich.console import Console

from splitserve.cli import pull as command
from splitserve.errors import UnavailableError
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.progress import Progress
from splitserve.modelstore.resolve import resolve


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITSERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_it_says_what_the_model_is_and_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_gguf(tmp_path / "m.gguf")

    assert command.run(str(file)) == 0

    said = capsys.readouterr().out
    assert str(resolve(str(file)).path) in said
    # 2 layers x 2 heads x 8 numbers x K and V x 2 bytes
    assert "KV cache  128.0 B a token in bf16: 128.0 KiB for 1k tokens, 1.0 MiB for 8k" in said
    assert "context   512 tokens" in said
    assert "licence" not in said


def test_the_licence_of_a_known_model_is_shown(tmp_path: Path) -> None:
    folder = resolve(str(write_gguf(tmp_path / "m.gguf")))

    assert "licence   Apache-2.0" in command.describe("smollm2", folder)


def test_a_wrong_name_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run("nope") == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: no model 'nope'")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UnavailableError("no network"), 3, "error: no network"),
        (KeyboardInterrupt(), 130, "error: interrupted, nothing half-made was kept"),
    ],
)
def test_failures_have_their_own_exit_codes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    def failing(model: str, *, progress: Progress) -> ModelFolder:
        raise error

    monkeypatch.setattr(command, "resolve", failing)

    assert command.run("smollm2") == code
    assert capsys.readouterr().err == f"{line}\n"


def test_finished_stages_stay_as_full_bars_and_unmeasured_ones_go() -> None:
    screen = io.StringIO()
    with command.RichProgress(Console(file=screen, width=120)) as progress:
        progress.stage("downloading", 2_000_000)
        progress.advance(500_000)
        progress.stage("converting", None)
        progress.advance(1)
        progress.done()
        progress.advance(1)

    assert "2.0/2.0 MB" in screen.getvalue()
    assert "converting" not in screen.getvalue()
