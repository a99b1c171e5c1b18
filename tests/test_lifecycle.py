"""A process's life, tried on real processes."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.errors import ConfigError
from splitserve.lifecycle import (
    StatusPipe,
    StatusReport,
    StopSignals,
    describe_exit,
    parse_report,
    pin_to_cores,
    reporting_failure,
)


def said(speak: object) -> bytes:
    """What ``speak(pipe)`` puts through a status pipe."""
    read_fd, write_fd = os.pipe()
    pipe = StatusPipe(write_fd)
    speak(pipe)  # type: ignore[operator]
    pipe.failed("the end")
    with os.fdopen(read_fd, "rb") as stream:
        return stream.read()


def test_ready_arrives_with_its_facts() -> None:
    line = said(lambda pipe: pipe.ready(port=8000, host="h"))
    assert parse_report(line) == StatusReport(ready=True, facts={"port": 8000, "host": "h"})


@given(st.text())
def test_a_reason_arrives_as_one_line(reason: str) -> None:
    line = said(lambda pipe: pipe.failed(reason))
    assert line.count(b"\n") == 1
    assert parse_report(line) == StatusReport(ready=False, reason=" ".join(reason.split()))


def test_only_the_first_word_counts() -> None:
    def speak(pipe: StatusPipe) -> None:
        pipe.ready()
        pipe.ready(port=1)

    assert parse_report(said(speak)) == StatusReport(ready=True)


def test_without_a_pipe_nothing_is_said() -> None:
    StatusPipe(None).ready(port=1)


def test_a_launcher_that_is_gone_does_not_matter() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    StatusPipe(write_fd).ready()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(write_fd)


def test_a_pipe_that_is_none_is_refused() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    os.close(write_fd)
    with pytest.raises(ConfigError, match=f"status-fd: {write_fd} is not an open"):
        StatusPipe(write_fd)


def test_an_error_of_ours_is_reported_and_travels_on() -> None:
    read_fd, write_fd = os.pipe()
    with pytest.raises(ConfigError), reporting_failure(StatusPipe(write_fd)):
        raise ConfigError("no such model")
    with os.fdopen(read_fd, "rb") as stream:
        assert parse_report(stream.read()).reason == "no such model"


@pytest.mark.parametrize("line", [b"", b"ready", b"[]", b"{}", b'{"event": "maybe"}', b"\xff"])
def test_other_lines_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which kind of ValueError is not promised
        parse_report(line)


def test_exits_are_described() -> None:
    assert describe_exit(3) == "exited with code 3"
    assert describe_exit(-signal.SIGKILL) == "was killed by SIGKILL"


def test_pinning_to_a_core_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cores: \[100000\] are not among"):
        pin_to_cores([100000])


def test_pinning_holds() -> None:
    core = min(os.sched_getaffinity(0))
    script = (
        "import os, sys; from splitserve.lifecycle import pin_to_cores\n"
        "pin_to_cores([]); pin_to_cores([int(sys.argv[1])]); print(*os.sched_getaffinity(0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(core)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(core)]


def test_a_parent_that_is_gone_is_noticed() -> None:
    script = (
        "from splitserve.lifecycle import end_with_parent\n"
        "from splitserve.errors import UnavailableError\n"
        "try: end_with_parent(2**30)\n"
        "except UnavailableError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "the process that started this one (1073741824) is gone" in done.stdout


class TestStopSignals:
    def test_the_first_signal_asks_once(self) -> None:
        asked: list[str] = []
        with StopSignals(lambda: asked.append("stop"), lambda: asked.append("abandon")) as signals:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert asked == ["stop"]
            assert signals.exit_code == 0

    def test_a_second_interrupt_abandons(self) -> None:
        asked: list[str] = []
        with StopSignals(lambda: asked.append("stop"), lambda: asked.append("abandon")) as signals:
            os.kill(os.getpid(), signal.SIGINT)
            assert asked == ["stop"]
            os.kill(os.getpid(), signal.SIGINT)
            assert asked == ["stop", "abandon"]
            assert signals.exit_code == 130

    def test_the_handlers_before_come_back(self) -> None:
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        with StopSignals(lambda: None):
            assert signal.getsignal(signal.SIGINT) != before[0]
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before

    def test_a_second_interrupt_ends_the_process_with_130(self) -> None:
        script = (
            "import os, signal\n"
            "from splitserve.lifecycle import StopSignals\n"
            "with StopSignals(lambda: None):\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
        )
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 130
