from pathlib import Path

import pytest

from splitserve.modelstore.progress import Silent
from splitserve.modelstore.staging import put_in_place, staging


def visible(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if not entry.name.endswith(".lock"))


def test_what_was_made_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    with staging(target, Silent()) as work:
        (work / "new").mkdir()
        (work / "new" / "file").write_text("x")
        put_in_place(work / "new", target)

    assert (target / "file").read_text() == "x"
    assert visible(target.parent) == ["model"]


def test_an_older_target_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    (target / "sub").mkdir(parents=True)
    with staging(target, Silent()) as work:
        (work / "new").mkdir()
        put_in_place(work / "new", target)

    assert list(target.iterdir()) == []
    assert visible(tmp_path) == ["model"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_stays_when_the_work_fails(tmp_path: Path, error: type[BaseException]) -> None:
    def work_that_fails() -> None:
        with staging(tmp_path / "model", Silent()) as work:
            (work / "half").write_text("x")
            raise error

    with pytest.raises(error):
        work_that_fails()

    assert visible(tmp_path) == []


def test_what_a_dead_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    leftover = tmp_path / ".model.part-dead"
    (leftover / "sub").mkdir(parents=True)
    other = tmp_path / ".other.part-alive"
    other.mkdir()

    with staging(tmp_path / "model", Silent()):
        assert not leftover.exists()

    assert other.exists()
