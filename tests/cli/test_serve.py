"""``serve`` and ``up`` with real workers and a real gateway, over the fake engine."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from flow.tiny_model import make_model_folder
from launch.deployments import gone, is_running

from .commands import splitserve

FAKE = ("--engine", "fake", "--port", "0")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_folder(tmp_path_factory.mktemp("model") / "tiny")


@dataclass
class Serving:
    process: "subprocess.Popen[str]"
    url: str = ""
    pids: dict[str, int] = field(default_factory=dict)

    def read_until_ready(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if row := re.match(r"(\S+) +\S+ +(\d+) +\S+ +ready", line):
                self.pids[row[1]] = int(row[2])
            if command := re.search(r"curl (http\S+)/v1/", line):
                self.url = command[1]
                return
        assert self.process.stderr is not None
        pytest.fail(f"never ready: {self.process.stderr.read()}")

    def read_until(self, ending: str) -> str:
        """The first line on stderr that ends so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.rstrip().endswith(ending):
                return line
        pytest.fail(f"ended without saying {ending!r}")

    def completes(self) -> bool:
        """Whether a request is answered in full."""
        body = {"model": "tiny", "prompt": "one two", "max_tokens": 3, "temperature": 0}
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=20)
        return answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 3

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@contextmanager
def serving(*arguments: str | Path) -> Iterator[Serving]:
    """Gives up nothing that it started."""
    with tempfile.TemporaryDirectory(prefix="ss-") as temporary:
        process = subprocess.Popen(
            [sys.executable, "-m", "splitserve", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": temporary, "XDG_RUNTIME_DIR": ""},
        )
        with process:
            running = Serving(process)
            try:
                running.read_until_ready()
                yield running
            finally:
                process.kill()
        assert gone(running.pids.values(), within_s=10)


def test_a_split_deployment_answers_and_stops_without_a_trace(model: Path) -> None:
    shape = ("--prefill", "1", "--decode", "1", "--served-model-name", "tiny")
    with serving("serve", model, *shape, *FAKE) as running:
        assert set(running.pids) == {"prefill-0", "decode-0", "gateway"}
        assert running.completes()
        roles = {
            name: Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            for name, pid in running.pids.items()
        }
        for name in ("prefill", "decode"):
            command = roles[f"{name}-0"]
            assert command[command.index("--role") + 1] == name
        assert running.stop(signal.SIGINT) == 130
        assert not any(is_running(pid) for pid in running.pids.values())


def test_a_topology_file_runs_and_sigterm_is_code_0(model: Path, tmp_path: Path) -> None:
    path, logs = tmp_path / "t.toml", tmp_path / "logs"
    path.write_text(
        f'[model]\nname = "{model}"\nserved_model_name = "tiny"\n'
        '[[workers]]\nengine = "fake"\ncount = 2\n'
    )
    with serving("up", path, "--port", "0", "--log-dir", logs) as running:
        assert set(running.pids) == {"colocated-0", "colocated-1", "gateway"}
        assert running.completes()
        assert running.stop(signal.SIGTERM) == 0
    written = {log.name for log in logs.iterdir()}
    assert written == {"colocated-0.log", "colocated-1.log", "gateway.log"}


def test_a_worker_that_is_killed_comes_back_and_serves(model: Path) -> None:
    with serving("serve", model, "--served-model-name", "tiny", *FAKE) as running:
        os.kill(running.pids["colocated-0"], signal.SIGKILL)
        assert "was killed by SIGKILL; starting again in 0.5 s" in running.read_until("0.5 s")
        running.read_until("colocated-0 ready")
        deadline = time.monotonic() + 20
        while not running.completes():
            assert time.monotonic() < deadline, "the new life takes no requests"
        assert running.stop(signal.SIGTERM) == 0


def test_kill_9_of_the_command_leaves_nothing_running(model: Path) -> None:
    with serving("serve", model, *FAKE) as running:
        assert all(is_running(pid) for pid in running.pids.values())
        assert running.stop(signal.SIGKILL) == -signal.SIGKILL
        assert gone(running.pids.values(), within_s=10)


def test_neither_the_command_nor_the_gateway_holds_torch_or_numpy(model: Path) -> None:
    with serving("serve", model, "--served-model-name", "tiny", *FAKE) as running:
        assert running.completes()
        for pid in (running.process.pid, running.pids["gateway"]):
            mapped = Path(f"/proc/{pid}/maps").read_text()
            assert "libpython" in mapped or "python" in mapped
            for heavy in ("torch", "numpy", "transformers"):
                assert f"site-packages/{heavy}" not in mapped
        assert running.stop(signal.SIGTERM) == 0


def test_a_port_in_use_is_code_4_with_the_gateways_reason(model: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        tempfile.TemporaryDirectory(prefix="ss-") as temporary,
    ):
        port = str(taken.getsockname()[1])
        flags = ("--engine", "fake", "--port", port)
        done = splitserve("serve", model, *flags, TMPDIR=temporary, XDG_RUNTIME_DIR="")
        (kept,) = Path(temporary).glob("splitserve-*")
        assert (kept / "gateway.log").exists()
    assert done.returncode == 4
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: gateway did not start: ")
    assert port in last


def test_more_memory_than_there_is_is_code_2_before_anything_starts(model: Path) -> None:
    done = splitserve("serve", model, "--kv-cache-memory-bytes", "900TiB")
    assert done.returncode == 2
    assert "of memory available" in done.stderr
    assert "starting" not in done.stderr
