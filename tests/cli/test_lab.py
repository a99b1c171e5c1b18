"""``splitserve lab`` as a user types it."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from lab.run.served import served
from lab.run.tiny_study import url_study
from splitserve.cli import lab_extra
from splitserve.cli.main import main
from splitserve.lab.run.journal import State, read_entries

from .commands import splitserve

ROOT = Path(__file__).parents[2]


def test_check_shows_what_a_study_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "check", str(ROOT / "studies" / "long-prompts.toml")]) == 0
    said = capsys.readouterr().out
    assert "arms: two | split, same_resources" in said
    assert "\n  fixed     prompt: L (768 tokens)\n" in said
    assert "\n35 runs, about " in said
    assert said.endswith("ADOPT is possible\n")


def test_check_says_why_a_study_cannot_end_in_adopt(capsys: pytest.CaptureFixture[str]) -> None:
    study = str(ROOT / "studies" / "long-prompts.toml")
    assert main(["lab", "check", study, "--profile", "smoke"]) == 0
    assert "ADOPT is not possible: study.profile" in capsys.readouterr().out


def test_a_plan_that_is_refused_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")
    study.write_text(study.read_text().replace("seconds = 100000", "seconds = 1"))
    assert main(["lab", "check", str(study)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: budget.seconds: is 1, and the 14 runs take about ")
    assert said.count("\n") == 1


def test_without_the_lab_extra_it_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab_extra, "find_spec", lambda name: None if name == "scipy" else name)
    assert main(["lab", "check", "study.toml"]) == 3
    assert capsys.readouterr().err == "error: the lab needs scipy: pip install splitserve[lab]\n"


def test_a_url_where_nobody_answers_is_told_before_anything_else(tmp_path: Path) -> None:
    study = url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")
    done = splitserve("lab", "run", study, "--out", tmp_path / "out")
    assert done.returncode == 40
    assert done.stderr.startswith("error: http://127.0.0.1:1/v1/models does not answer: ")
    assert "splitserve lab resume" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_study_is_not_run_twice_into_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")
    arguments = ["lab", "run", str(study), "--out", str(tmp_path / "out")]
    assert main(arguments) == 40
    capsys.readouterr()
    assert main(arguments) == 2
    assert "a study is here already" in capsys.readouterr().err


def test_there_is_nothing_to_resume_in_an_empty_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")
    assert main(["lab", "resume", str(study), "--out", str(tmp_path)]) == 2
    assert "no study was begun here" in capsys.readouterr().err


async def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        study, out = url_study(tmp_path, one.url, split.url), tmp_path / "out"
        measuring = asyncio.Event()
        one.after = lambda number: measuring.set() if number == 30 else None
        lab = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "splitserve", "lab", "run", str(study), "--out", str(out)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "NO_COLOR": "1"},
        )
        await measuring.wait()
        lab.send_signal(signal.SIGINT)
        _, said = await lab.communicate()
    text = said.decode()
    assert lab.returncode == 130
    assert f"splitserve lab resume {study} --out {out}" in text
    assert "Traceback" not in text
    assert read_entries(out / "runs.jsonl")[-1].state is State.VOID
