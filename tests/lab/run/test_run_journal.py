"""What survives a crash."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.run.disk import append
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import Entry, Journal, State, read_entries


def entry(number: int, state: State, *, attempt: int = 1, invalid: bool = False) -> Entry:
    return Entry(number=number, attempt=attempt, state=state, at="then", invalid=invalid)


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """The kernel refuses what goes beyond ``size`` bytes, in the middle of a write if need be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_entries_are_read_back_as_they_were_added(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.jsonl")
    added = [entry(1, State.STARTED), entry(1, State.MEASURED), entry(1, State.ACCEPTED)]
    for one in added:
        journal.add(one)
    assert read_entries(tmp_path / "runs.jsonl") == added
    assert Journal(tmp_path / "runs.jsonl").is_accepted(1)


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_line_that_was_being_written_says_nothing_and_stands_in_nobodys_way(
    tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "runs.jsonl"
    journal = Journal(path)
    journal.add(entry(1, State.ACCEPTED))
    journal.add(entry(2, State.ACCEPTED))
    path.write_bytes(path.read_bytes()[:-cut])
    again = Journal(path)
    assert (again.is_accepted(1), again.is_accepted(2)) == (True, False)
    again.add(entry(2, State.STARTED))
    assert [one.number for one in read_entries(path)] == [1, 2]


def test_interrupted_attempts_do_not_count_as_broken_ones(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.jsonl")
    for attempt in (1, 2, 3):
        journal.add(entry(4, State.STARTED, attempt=attempt))
        journal.add(entry(4, State.VOID, attempt=attempt, invalid=attempt == 2))
    assert (journal.attempts(4), journal.invalid([4, 5])) == (3, 1)


def test_a_full_disk_is_said_so_with_what_to_do() -> None:
    with pytest.raises(UnavailableError, match="No space left on device; make room") as raised:
        append(Path("/dev/full"), b"a line\n")
    assert "\n" not in str(raised.value)


def test_a_line_that_the_disk_took_only_half_of_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    journal = Journal(path)
    journal.add(entry(1, State.ACCEPTED))
    size = path.stat().st_size
    with no_file_above(size + 20), pytest.raises(UnavailableError, match="ulimit -f"):
        journal.add(entry(2, State.STARTED))
    assert path.stat().st_size == size
    journal.add(entry(2, State.VOID))
    assert journal.entries == read_entries(path)
    assert [one.state for one in journal.entries] == [State.ACCEPTED, State.VOID]


def test_a_file_that_does_not_fit_leaves_the_one_before_and_no_half(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    folder.write("verdict.json", b"old")
    with no_file_above(20), pytest.raises(UnavailableError, match="ulimit -f"):
        folder.write("verdict.json", b"new" * 20)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
        ("verdict.json", b"old")
    ]


def test_records_that_are_gone_from_a_run_that_counts_are_told(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"requests.jsonl cannot be read .*run 7 counts"):
        StudyFolder(tmp_path).read_records(7)


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"a": 1}\n')
    with pytest.raises(ConfigError, match="no journal of runs"):
        read_entries(path)


def test_a_study_is_run_by_one_lab_at_a_time(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    with folder.held(), pytest.raises(ConfigError, match="another lab"), folder.held():
        pass


def test_a_void_attempt_is_kept_under_a_name_of_its_own(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    (folder.new_run(7) / "requests.jsonl").write_text("")
    assert folder.set_aside(7, 1) == "runs/7.void-1"
    assert (tmp_path / "runs/7.void-1/requests.jsonl").exists()
    assert not folder.run_folder(7).exists()
