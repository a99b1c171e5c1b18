"""The command line's part in who may do what."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from splitserve.frontend.access import KeyRing


def splitserve(*arguments: str | Path, **env: str) -> "subprocess.CompletedProcess[str]":
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SPLITSERVE")}
    return subprocess.run(
        [sys.executable, "-m", "splitserve", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        stdin=subprocess.DEVNULL,
        env={**plain, **env},
    )


def test_a_key_goes_to_stdout_and_its_line_to_stderr() -> None:
    done = splitserve("key", "alice")
    assert done.returncode == 0
    assert re.fullmatch(r"sk-[\w-]{43}\n", done.stdout)
    assert re.fullmatch(r"alice:sha256:[0-9a-f]{64}\n", done.stderr)


def test_a_key_made_for_a_file_lets_its_owner_in(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    keys = {owner: splitserve("key", owner, "--file", file) for owner in ("alice", "bob")}
    assert file.stat().st_mode & 0o777 == 0o600
    ring = KeyRing.load(file, {})
    assert ring is not None
    for owner, done in keys.items():
        assert (done.returncode, done.stderr) == (0, "")
        assert ring.owner(done.stdout.strip().encode()) == owner
        assert done.stdout.strip() not in file.read_text()


@pytest.mark.parametrize("owner", ["a b", "a:b", ""])
def test_an_owner_that_is_no_name_is_one_line_and_code_2(owner: str) -> None:
    done = splitserve("key", owner)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: .* is no name: .*\n", done.stderr)


NOWHERE = "/nonexistent"


@pytest.mark.parametrize(
    ("arguments", "env", "said", "silent"),
    [
        (("--host", "0.0.0.0"), {}, "warning: the gateway listens on 0.0.0.0", ""),
        (("--host", "0.0.0.0"), {"SPLITSERVE_API_KEY": "k" * 20}, "", "warning"),
        (("--host", "0.0.0.0", "--api-key-file", NOWHERE), {}, "", "warning"),
        ((), {}, "", "warning"),
    ],
    ids=["open", "key in the environment", "key file", "loopback"],
)
@pytest.mark.parametrize("verb", [("gateway", NOWHERE, "--worker", "unix:/x"), ("render", NOWHERE)])
def test_an_api_without_keys_that_others_reach_is_warned_of(
    verb: tuple[str, ...], arguments: tuple[str, ...], env: dict[str, str], said: str, silent: str
) -> None:
    """The model does not exist: what is said before that is looked at."""
    done = splitserve(*verb, *arguments, **env)
    assert done.returncode != 0
    assert said in done.stderr
    assert not silent or silent not in done.stderr
