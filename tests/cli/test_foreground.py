"""What ``serve`` and ``up`` do with the signals they get, and what they show."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launch.deployments import gone

SCRIPT = Path(__file__).with_name("foreground_script.py")


@contextmanager
def foreground(tmp_path: Path, *kinds: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(tmp_path), *kinds],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def until_ready(process: "subprocess.Popen[str]") -> str:
    """Everything on stdout up to the command that tries it."""
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if "curl" in line:
            return shown
    pytest.fail(f"never ready: {shown} {process.stderr and process.stderr.read()}")


def pids(shown: str) -> list[int]:
    """From the table of what runs: name, role, pid."""
    return [int(pid) for pid in re.findall(r"^\S+ +\S+ +(\d+) +all", shown, re.MULTILINE)]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["ctrl-c", "sigterm"]
)
def test_one_signal_stops_everything_cleanly(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with foreground(tmp_path, "worker", "worker") as process:
        running = pids(until_ready(process))
        assert len(running) == 3
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode == code
        assert "Traceback" not in err
        assert err.splitlines()[-1].endswith("stopped")
        assert gone(running, within_s=0)


def test_a_second_ctrl_c_kills_what_does_not_stop(tmp_path: Path) -> None:
    with foreground(tmp_path, "deaf") as process:
        running = pids(until_ready(process))
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        # The gateway goes first; then only the worker that ignores SIGTERM is left.
        while not process.stderr.readline().endswith("gateway stopped\n"):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert gone(running, within_s=5)


def test_sighup_restarts_the_workers_and_says_so(tmp_path: Path) -> None:
    with foreground(tmp_path, "worker", "worker") as process:
        running = pids(until_ready(process))
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        lines = list[str]()
        while not lines or "restarted 2 workers" not in lines[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        told = [line.split(" ", 1)[1].strip() for line in lines]
        assert "restarting worker-0 (1 of 2)" in told
        assert "restarting worker-1 (2 of 2)" in told
        assert gone(running[:2], within_s=0)
        assert not gone(running[2:], within_s=0)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        assert process.returncode == 0
        assert "Traceback" not in err


IN_TERMINAL = """
import fcntl, runpy, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_closed_terminal_stops_everything(tmp_path: Path) -> None:
    manager, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, str(SCRIPT), str(tmp_path), "worker"],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    os.close(terminal)
    with process:
        running = pids(until_ready(process))
        os.close(manager)  # the kernel sends SIGHUP to the session's leader
        assert process.wait() == 0
        assert gone(running, within_s=0)


def test_a_signal_during_the_start_stops_it(tmp_path: Path) -> None:
    with foreground(tmp_path, "slow") as process:
        assert process.stderr is not None
        while not process.stderr.readline().endswith("gateway ready\n"):
            pass
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()
        assert process.returncode == 0
        assert "Traceback" not in err
        assert "curl" not in out


def test_what_runs_is_shown_with_a_command_to_try_it(tmp_path: Path) -> None:
    with foreground(tmp_path, "worker") as process:
        shown = until_ready(process)
        url = re.search(r"curl (http://127\.0\.0\.1:\d+)/v1/chat/completions", shown)
        assert url is not None
        assert f"OpenAI API at {url[1]}/v1" in shown
        for column in ("name", "role", "pid", "cores", "address", "state"):
            assert column in shown
        assert shown.count(" ready") == 2


def test_a_process_that_does_not_start_is_named_with_its_log(tmp_path: Path) -> None:
    with foreground(tmp_path, "refuses") as process:
        _, err = process.communicate()
        lines = err.splitlines()
        assert lines[-1] == "error: refuses-0 did not start: no such model"
        assert lines[-2] == "  about to give up"
        assert lines[-3] == f"last lines of {tmp_path}/refuses-0.log:"
