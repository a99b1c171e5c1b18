"""``splitserve doctor`` as a user or a script runs it."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from flow.tiny_model import make_model_folder
from splitserve.cli.doctor_run import exit_code
from splitserve.doctor.findings import Advice

from .commands import splitserve

QUICK = ("--seconds", "0.01")


def advice(level: Any) -> Advice:
    return Advice(level, "a", "s", "c")


@pytest.mark.parametrize(
    ("levels", "code"),
    [((), 0), (("note",), 0), (("note", "warning"), 1), (("warning", "error"), 4)],
    ids=("nothing", "notes", "warnings", "errors"),
)
def test_the_exit_code_is_that_of_the_worst(levels: tuple[str, ...], code: int) -> None:
    assert exit_code(map(advice, levels)) == code


def test_this_machine_is_one_json_object_and_progress_is_apart() -> None:
    done = splitserve("doctor", "--json", *QUICK)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["kind"] == "machine"
    assert report["machine"]["cores"]
    states = {(link["path"], link["target"]): link["state"] for link in report["links"]}
    assert states["shm", report["links"][0]["target"]] == "measured"
    assert "measuring shm" in done.stderr


def test_a_topology_that_would_not_start_is_code_4_and_told_in_lines(tmp_path: Path) -> None:
    model = make_model_folder(tmp_path / "tiny")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        path = tmp_path / "t.toml"
        path.write_text(
            f'[model]\nname = "{model}"\n[gateway]\nport = {port}\n'
            '[[workers]]\nrole = "prefill"\nengine = "fake"\n'
            '[[workers]]\nrole = "decode"\nengine = "fake"\n'
        )
        done = splitserve("doctor", path, *QUICK)
    assert done.returncode == 4, done.stderr
    assert f"gateway: http port 127.0.0.1:{port} is taken" in done.stdout
    assert "\nprefill-0  decode-0" in done.stdout
    assert "KV 256 B a token" in done.stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/nonexistent.toml", "/nonexistent.toml: No such file or directory"),
        ("ftp://h", "TARGET 'ftp://h' is not of the form http://host:port"),
    ],
    ids=("file", "url"),
)
def test_a_wrong_target_is_one_line_and_code_2(target: str, message: str) -> None:
    done = splitserve("doctor", target)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {message}\n"


def test_a_url_where_nobody_answers_is_code_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    done = splitserve("doctor", f"http://127.0.0.1:{number}")
    assert (done.returncode, done.stdout) == (3, "")
    assert "does not answer" in done.stderr
