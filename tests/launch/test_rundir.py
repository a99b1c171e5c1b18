import os
import stat
from pathlib import Path

import pytest

from splitserve.errors import UnavailableError
from splitserve.launch.rundir import RunDirectory, remove_left_behind

DAY_S = 24 * 3600.0


def aged(path: Path, now: float) -> None:
    os.utime(path, (now - DAY_S - 1, now - DAY_S - 1))


def left_behind(base: Path) -> Path:
    with RunDirectory(base) as run:
        run.keep()
    return run.path


def test_it_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as run:
        assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
        (run.path / "a.log").write_text("x")
    assert list(tmp_path.iterdir()) == []


def test_it_can_be_kept(tmp_path: Path) -> None:
    assert left_behind(tmp_path).is_dir()


def test_an_old_one_without_an_owner_is_removed(tmp_path: Path) -> None:
    old, young = left_behind(tmp_path), left_behind(tmp_path)
    now = young.stat().st_mtime
    aged(old, now)
    remove_left_behind(tmp_path, now)
    assert not old.exists()
    assert young.exists()


def test_an_old_one_in_use_stays(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as run:
        now = run.path.stat().st_mtime
        aged(run.path, now)
        remove_left_behind(tmp_path, now)
        assert run.path.exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    folder, link = tmp_path / "splitserve-notes", tmp_path / "splitserve-link"
    folder.mkdir()
    link.symlink_to(target)
    now = folder.stat().st_mtime + 2 * DAY_S
    remove_left_behind(tmp_path, now)
    assert folder.exists()
    assert link.is_symlink()
    assert target.exists()


def test_a_base_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="cannot make a folder for sockets and logs in"):
        RunDirectory(tmp_path / "missing").__enter__()
