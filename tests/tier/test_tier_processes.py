"""Real processes on one folder: the bound holds, hits are right, and a dead one leaves no trace."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tier_rig import FILE, IDENTITY, Landing, blocks_in, content, digest, measured, parts_of

from splitserve.tier.presence import Presence
from splitserve.tier.store import FolderTier
from splitserve.tier.survey import PART_PREFIX

WRITER = """
import os, sys
from pathlib import Path
import splitserve.tier.store as store_module
from tier_rig import FILE, IDENTITY, content, digest, parts_of

def half(fd, parts, offset):
    os.pwrite(fd, parts[0], offset)
    print("half", flush=True)
    sys.stdin.read()

store_module.write_from = half
store = store_module.FolderTier(Path(sys.argv[1]), 2 * FILE, IDENTITY)
store.put(digest(1), parts_of(content(1)))
"""
"""Stops in the middle of writing a block, until its input ends."""

BUSY = """
import random, sys
from pathlib import Path
from splitserve.tier.store import FolderTier
from tier_rig import FILE, IDENTITY, Landing, content, digest, measured, parts_of

root, seed = Path(sys.argv[1]), int(sys.argv[2])
chance, hits = random.Random(seed), 0
store = FolderTier(root, 5 * FILE, IDENTITY)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(300):
    number = chance.randrange(12)
    if chance.random() < 0.5:
        assert store.put(digest(number), parts_of(content(number)))
    else:
        landing = Landing()
        if store.get(digest(number), landing.parts):
            hits += 1
            assert landing.holds(number)
    there, told = measured(root)
    assert there <= told <= 5 * FILE, (there, told)
assert store.counts().corrupt == 0
print(hits, flush=True)
"""


@contextmanager
def child(script: str, *args: object) -> Iterator["subprocess.Popen[str]"]:
    """A process that runs ``script`` and finds the rig; it is gone in the end."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def parts_in(root: Path) -> int:
    return sum(file.name.startswith(PART_PREFIX) for file in root.iterdir())


def test_what_a_killed_process_was_writing_is_swept_by_the_next(tmp_path: Path) -> None:
    with child(WRITER, tmp_path) as writer:
        assert line(writer) == "half"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert parts_in(tmp_path) == 1
        store = FolderTier(tmp_path, 2 * FILE, IDENTITY)
        assert parts_in(tmp_path) == 0
        assert blocks_in(tmp_path) == set()
        assert measured(tmp_path) == (0, 0)
        assert not store.get(digest(1), Landing().parts)
        assert store.put(digest(1), parts_of(content(1)))
        store.close()


def test_what_a_living_process_is_writing_is_counted_and_left_alone(tmp_path: Path) -> None:
    with child(WRITER, tmp_path) as writer:
        assert line(writer) == "half"
        store = FolderTier(tmp_path, 2 * FILE, IDENTITY)
        assert measured(tmp_path) == (FILE, FILE)
        assert store.put(digest(2), parts_of(content(2)))
        assert store.put(digest(3), parts_of(content(3)))  # one of ours had to go for it
        assert parts_in(tmp_path) == 1
        assert blocks_in(tmp_path) == {digest(3)}
        assert measured(tmp_path) == (2 * FILE, 2 * FILE)
        store.close()


def test_a_block_that_another_process_finished_first_is_kept_once(tmp_path: Path) -> None:
    store = FolderTier(tmp_path, 2 * FILE, IDENTITY)
    with child(WRITER, tmp_path) as writer:
        assert line(writer) == "half"
        assert store.put(digest(1), parts_of(content(1)))
        writer.communicate()  # its input ends: it goes on, with half of its block unwritten
        assert writer.returncode == 0
    landing = Landing()
    assert store.get(digest(1), landing.parts)
    assert landing.holds(1)
    assert measured(tmp_path) == (FILE, FILE)
    store.close()


def test_two_busy_processes_keep_the_bound_and_find_only_right_bytes(tmp_path: Path) -> None:
    with child(BUSY, tmp_path, 1) as one, child(BUSY, tmp_path, 2) as two:
        for process in (one, two):
            assert line(process) == "ready"
        for process in (one, two):
            tell(process)
        hits = [int(process.communicate()[0]) for process in (one, two)]
        assert [one.returncode, two.returncode] == [0, 0]
    assert min(hits) > 0
    there, told = measured(tmp_path)
    assert there == told <= 5 * FILE


MARK = """
import sys
from pathlib import Path
from splitserve.tier.presence import Presence
mark = Presence(Path(sys.argv[1]))
print("here", flush=True)
sys.stdin.read()
"""


def test_only_the_last_one_tidies_up_and_a_killed_one_does_not_count(tmp_path: Path) -> None:
    tidied: list[str] = []
    path = tmp_path / ".users"
    with child(MARK, path) as other:
        assert line(other) == "here"
        Presence(path).leave(lambda: tidied.append("too early"))
        assert tidied == []
        last = Presence(path)
        other.send_signal(signal.SIGKILL)
        other.wait()
        last.leave(lambda: tidied.append("last"))
        last.leave(lambda: tidied.append("again"))
    assert tidied == ["last"]
