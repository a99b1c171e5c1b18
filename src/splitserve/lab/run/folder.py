"""The folder of one study: its plan, its journal, and a folder for each run.

plan.toml, plan.json      the plan as read, its digest, profile and where its files are
preflight.json            what was found out before the first run
arms/LABEL.json           the effective configuration of each arm, arms/LABEL/ its logs
runs.jsonl                the journal
runs/7/                   the run that counts; runs/7.void-1/ an attempt that does not
verdict.json
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.load.record import RequestRecord, from_line, to_line
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.disk import refused, write
from splitserve.lab.run.journal import Journal


class _PlanNote(msgspec.Struct, frozen=True):
    digest: str
    profile: str
    folder: str


class StudyFolder:
    """Paths and files below ``path``. Raises UnavailableError where the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def journal_path(self) -> Path:
        return self.path / "runs.jsonl"

    def create(self, plan: Plan, study_file: Path) -> None:
        """Writes the plan. Raises ConfigError when another study is here, or this one already."""
        if (self.path / "plan.json").exists():
            raise ConfigError(
                f"{self.path}: a study is here already; go on with `splitserve lab resume`, or "
                "give another folder with --out"
            )
        note = _PlanNote(plan.digest, plan.study.study.profile, str(study_file.parent.resolve()))
        self.write("plan.toml", study_file.read_bytes())
        self.write_json("plan.json", note)

    def check_plan(self, plan: Plan) -> None:
        """Raises ConfigError unless this folder's study was begun with exactly ``plan``."""
        note = self._note()
        if note.digest != plan.digest:
            raise ConfigError(
                f"{self.path}: this study was begun with the plan {note.digest[:12]}, and the file "
                f"now gives {plan.digest[:12]}; a changed plan is another study: undo the change, "
                "or run it into another folder with --out"
            )

    def run_folder(self, number: int) -> Path:
        return self.path / "runs" / str(number)

    def new_run(self, number: int) -> Path:
        """An empty folder for an attempt; what lies there is cleared away by ``set_aside``."""
        folder = self.run_folder(number)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise refused(folder, error) from error
        return folder

    def set_aside(self, number: int, attempt: int) -> str:
        """Keeps a void attempt's files under a name of their own, which is returned."""
        kept = f"runs/{number}.void-{attempt}"
        if self.run_folder(number).exists():
            try:
                self.run_folder(number).rename(self.path / kept)
            except OSError as error:
                raise refused(self.path / kept, error) from error
        return kept

    def write_records(self, number: int, records: list[RequestRecord]) -> None:
        ordered = sorted(records, key=lambda record: record.intended_s)
        self.write(f"runs/{number}/requests.jsonl", b"".join(map(to_line, ordered)))

    def read_records(self, number: int) -> list[RequestRecord]:
        path = self.run_folder(number) / "requests.jsonl"
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise UnavailableError(
                f"{path} cannot be read ({error.strerror}), and run {number} counts; put it back"
            ) from error
        return [from_line(line) for line in lines]

    def read_json(self, name: str) -> Any:
        """None where there is no such file."""
        try:
            return msgspec.json.decode((self.path / name).read_bytes())
        except FileNotFoundError:
            return None

    def write_json(self, name: str, value: object) -> None:
        self.write(name, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")

    def write(self, name: str, content: bytes) -> None:
        """Whole and on disk, or not at all."""
        write(self.path / name, content)

    @contextmanager
    def held(self) -> Iterator[Journal]:
        """The journal, for one lab at a time: the kernel drops the lock when that dies."""
        with self._lock() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(f"{self.path}: another lab is running this study") from error
            yield Journal(self.journal_path)

    def _lock(self) -> BinaryIO:
        path = self.path / "lock"
        try:
            return path.open("ab")
        except OSError as error:
            raise refused(path, error) from error

    def _note(self) -> _PlanNote:
        try:
            return msgspec.json.decode((self.path / "plan.json").read_bytes(), type=_PlanNote)
        except FileNotFoundError as error:
            raise ConfigError(
                f"{self.path}: no study was begun here; start it with `splitserve lab run`"
            ) from error
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self.path}/plan.json is no note of a plan: {error}") from error
