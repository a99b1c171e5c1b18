"""Which commit the lab runs from: a checkout's own, and nobody else's."""

import subprocess
from pathlib import Path

import pytest

from splitserve.lab.report.checkout import checkout_commit


def git(folder: Path, *arguments: str) -> str:
    named = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    done = subprocess.run(
        ("git", *named, *arguments), cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def module(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    file = tmp_path / "package" / "__init__.py"
    file.parent.mkdir()
    file.write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--no-gpg-sign", "-m", "first")
    return file


def test_a_checkout_has_its_commit(module: Path) -> None:
    assert checkout_commit(module) == git(module.parent, "rev-parse", "HEAD")


def test_changes_that_no_commit_has_are_said(module: Path) -> None:
    module.write_text("a = 2\n")
    assert checkout_commit(module) == f"{git(module.parent, 'rev-parse', 'HEAD')}, with changes"


def test_a_package_installed_below_a_checkout_is_not_part_of_it(module: Path) -> None:
    installed = module.parent / "site" / "__init__.py"
    installed.parent.mkdir()
    installed.write_text("")
    assert checkout_commit(installed) is None


def test_outside_of_any_checkout_there_is_no_commit(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_text("")
    assert checkout_commit(file) is None


def test_without_git_there_is_no_commit(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert checkout_commit(module) is None
