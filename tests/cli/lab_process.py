"""``splitserve lab`` as a process of its own, without the client's self-test."""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import State, read_entries

ROOM = 1 << 30
VERDICTS = (10, 20, 30)


@dataclass
class Ended:
    code: int
    out: str
    err: str


async def start_lab(*arguments: str | Path, room: int = ROOM) -> asyncio.subprocess.Process:
    """No file may grow beyond ``room`` bytes."""
    path = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("limited_lab.py")), str(room), "lab"),
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(path)},
    )


async def lab(*arguments: str | Path, room: int = ROOM) -> Ended:
    process = await start_lab(*arguments, room=room)
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


def states_of(folder: StudyFolder) -> dict[int, list[State]]:
    """Of each run, in order."""
    states: dict[int, list[State]] = {}
    for entry in read_entries(folder.journal_path):
        states.setdefault(entry.number, []).append(entry.state)
    return states


def assert_whole(folder: StudyFolder, numbers: set[int]) -> None:
    """Every run counts, and has one record of each of its requests: none of an attempt before."""
    newest = {entry.number: entry for entry in read_entries(folder.journal_path)}
    lacking = [one for one in newest.values() if one.state is not State.ACCEPTED]
    assert (lacking, set(newest)) == ([], numbers)
    for number in numbers:
        ids = [record.request_id for record in folder.read_records(number)]
        assert len(set(ids)) == len(ids) > 0
