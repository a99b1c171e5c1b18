"""The guard around a server that is not ours."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.deployments import gone
from launch.test_vllm_running import PROGRAM
from splitserve.launch.ports import free_ports

LAUNCHER = """
import os, subprocess, sys
read, write = os.pipe()
subprocess.Popen(
    [sys.executable, "-m", "splitserve.processes.guard", "--status-fd", str(write),
     "--parent-pid", str(os.getpid()), *sys.argv[1:]],
    pass_fds=[write], start_new_session=True,
)
print(os.read(read, 100).decode(), flush=True)
sys.stdin.read()
"""


def guarded(*command: str) -> tuple[str, ...]:
    (port,) = free_ports(1)
    serve = ("serve", "m", "--host", "127.0.0.1", "--port", str(port))
    ours = ("--url", f"http://127.0.0.1:{port}", "--within-s", "20")
    return (*ours, "--", *command, *serve)


def guard(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "splitserve.processes.guard", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        start_new_session=True,
        check=False,
    )


def group_of(leader: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == leader:
                    found.add(int(entry.name))
            except ProcessLookupError:
                continue
    return found


@contextmanager
def launched(*arguments: str) -> "Iterator[tuple[subprocess.Popen[str], set[int]]]":
    """A launcher whose guard says that its server answers, and the processes of the guard's
    group."""
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        assert '"ready"' in launcher.stdout.readline()
        listed = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text()
        family = group_of(int(listed))
        assert len(family) == 3
        yield launcher, family
        launcher.send_signal(signal.SIGKILL)
    assert gone(family, 5)


def test_all_end_when_the_launcher_is_killed() -> None:
    with launched(*guarded(*PROGRAM)) as (launcher, family):
        assert launcher.pid not in family


WANDERER = """
import os, runpy, sys
os.sched_setaffinity(0, {CORE})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is one core")
def test_a_server_that_moves_to_another_core_is_brought_back() -> None:
    core, other = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    program = (sys.executable, "-c", WANDERER.replace("CORE", str(other)), PROGRAM[1])
    with launched("--cores", str(core), *guarded(*program)) as (_, family):
        assert {core} == {each for pid in family for each in os.sched_getaffinity(pid)}


def test_it_ends_as_the_server_ends() -> None:
    before_ready = guard(*guarded(sys.executable, "-c", "import sys; sys.exit(9)"))
    assert before_ready.returncode == 3
    assert "exited with code 9" in before_ready.stderr


def test_a_program_that_cannot_be_started_is_said() -> None:
    missing = guard(*guarded("/nonexistent/vllm"))
    assert missing.returncode == 3
    assert "cannot start /nonexistent/vllm: No such file or directory" in missing.stderr


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k")
    key.chmod(0o644)
    refused = guard("--api-key-file", str(key), *guarded(*PROGRAM))
    assert refused.returncode == 3
    assert "is open to others" in refused.stderr
