"""The key that signs what clients carry."""

from pathlib import Path

import pytest

from splitserve.errors import ConfigError
from splitserve.frontend.scale_out.stream_state import KEY_VARIABLE, MIN_KEY_BYTES, state_key

LONG = "x" * MIN_KEY_BYTES


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "key"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_file_goes_before_the_environment(tmp_path: Path) -> None:
    file = key_file(tmp_path, LONG + "\n")
    assert state_key(file, {KEY_VARIABLE: "y" * 40}) == LONG.encode()


def test_the_environment_goes_before_a_new_key() -> None:
    assert state_key(None, {KEY_VARIABLE: LONG}) == LONG.encode()


def test_without_either_each_process_has_its_own() -> None:
    assert len(state_key(None, {})) == MIN_KEY_BYTES
    assert state_key(None, {}) != state_key(None, {})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        state_key(key_file(tmp_path, LONG, mode), {})


def test_a_short_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 32"):
        state_key(key_file(tmp_path, LONG[1:]), {})
    with pytest.raises(ConfigError, match=KEY_VARIABLE):
        state_key(None, {KEY_VARIABLE: ""})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        state_key(tmp_path / "none", {})
