"""The study that the demo ends with."""

import io
import re
import stat
from pathlib import Path

import pytest
from rich.console import Console

from splitserve.cli import lab, lab_extra
from splitserve.cli.demo_study import STUDY, browser_opener, run_study, show_page
from splitserve.lab.plan.phases import runs_of
from splitserve.lab.plan.resolve import read_plan
from splitserve.lab.plan.study import SMOKE

ROOT = Path(__file__).parents[2]
DESKTOP = {"DISPLAY": ":0"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the lab was asked to run; it ends with ``code``."""
    seen: dict[str, object] = {"code": 20}

    def run(study: Path, profile: str | None, out: Path | None) -> object:
        seen.update(study=study, profile=profile, out=out)
        return seen["code"]

    monkeypatch.setattr(lab, "run", run)
    return seen


def ended(results: Path) -> tuple[int, str]:
    said = io.StringIO()
    code = run_study(Console(file=said, width=100), results=results)
    return code, " ".join(said.getvalue().split())


def test_its_plan_holds_and_can_never_end_in_adopt() -> None:
    plan = read_plan(STUDY)
    assert plan.study.study.profile == SMOKE
    assert plan.study.may_adopt is False
    assert plan.study.comparison.kind == "same_resources"
    # About what it takes on two idle cores.
    assert sum(run.seconds for run in runs_of(plan)) < 180


def test_its_arms_have_the_shapes_that_the_demo_shows() -> None:
    plan = read_plan(STUDY)
    roles = [
        [(group.role, group.count) for group in arm.topology.workers]
        for arm in (plan.baseline, plan.split)
        if arm.topology is not None
    ]
    assert roles == [[("colocated", 2)], [("prefill", 1), ("decode", 1)]]


@pytest.mark.parametrize("verdict", [10, 11, 20, 30])
def test_no_verdict_fails_the_demo(tmp_path: Path, asked: dict[str, object], verdict: int) -> None:
    asked["code"] = verdict
    code, said = ended(tmp_path)
    assert code == 0
    assert "a smoke study and proves nothing" in said
    assert said.index("a smoke study and") < said.index("That was a smoke study")


@pytest.mark.parametrize("trouble", [40, 130, 143], ids=["tool error", "Ctrl-C", "SIGTERM"])
def test_a_study_that_did_not_end_fails_the_demo(
    tmp_path: Path, asked: dict[str, object], trouble: int
) -> None:
    asked["code"] = trouble
    code, said = ended(tmp_path)
    assert code == trouble
    assert "That was" not in said


def test_every_demo_has_a_folder_of_its_own(tmp_path: Path, asked: dict[str, object]) -> None:
    ended(tmp_path)
    assert asked["study"] == STUDY
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/demo-\d{{8}}-\d{{6}}", str(asked["out"]))


def test_without_the_lab_extra_the_study_is_left_out(
    tmp_path: Path, asked: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_extra, "find_spec", lambda name: None)
    code, said = ended(tmp_path)
    assert (code, "pip install splitserve[lab]" in said) == (0, True)
    assert "out" not in asked


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with an ``xdg-open`` and an ``open`` that do nothing."""
    for name in ("xdg-open", "open"):
        file = tmp_path / name
        file.write_text("#!/bin/sh\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "platform", "opener"),
    [
        ({"DISPLAY": ":0"}, "linux", "xdg-open"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", "xdg-open"),
        ({}, "darwin", "open"),
        ({}, "linux", None),
        ({"DISPLAY": ""}, "linux", None),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "a b"}, "linux", None),
        ({"SSH_CONNECTION": "a b"}, "darwin", None),
    ],
    ids=["X", "Wayland", "macOS", "no desktop", "empty", "ssh", "ssh to macOS"],
)
def test_the_page_is_opened_where_somebody_sees_it(
    programs: Path, environ: dict[str, str], platform: str, opener: str | None
) -> None:
    found = browser_opener({**environ, "PATH": str(programs)}, platform)
    assert found == (None if opener is None else str(programs / opener))


def test_a_desktop_without_an_opener_fails_nothing(tmp_path: Path) -> None:
    assert show_page(tmp_path, {**DESKTOP, "PATH": str(tmp_path)}, "linux") is False


def test_an_opener_that_fails_fails_nothing(programs: Path) -> None:
    (programs / "xdg-open").write_text("#!/bin/sh\nexit 3\n")
    assert show_page(programs, {**DESKTOP, "PATH": str(programs)}, "linux") is True
