"""``splitserve bench handoff`` prints readings, and ends well whatever a library does then."""

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli.commands import splitserve
from flow.tiny_model import make_model_folder
from splitserve.transfer.registry import PACKAGES


def handoff(model: Path, *arguments: str) -> tuple[int, str, str]:
    small = ("--model", model, "--tokens", "40", "--repeats", "1", "--json")
    done = splitserve("bench", "handoff", *small, *arguments)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("connector", ["shm", *PACKAGES])
def test_each_placement_is_read_and_the_command_succeeds(tmp_path: Path, connector: str) -> None:
    try:
        import_module(PACKAGES.get(connector, "splitserve"))
    except ImportError as error:
        pytest.skip(f"the package of extra {connector} cannot be used: {error}")
    code, out, _ = handoff(make_model_folder(tmp_path / "tiny"), "--connector", connector)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [(row["connector"], row["blocks"]) for row in rows] == [
        (connector, "packed"),
        (connector, "used"),
        (connector, "scattered"),
    ]


@pytest.mark.skipif(find_spec("nixl") is not None, reason="the package is installed")
def test_a_package_that_is_missing_is_said_with_the_cure(tmp_path: Path) -> None:
    code, out, err = handoff(make_model_folder(tmp_path / "tiny"), "--connector", "nixl")
    assert (code, out) == (2, "")
    assert "pip install 'splitserve[nixl]'" in err
