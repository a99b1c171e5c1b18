"""The help that a user reads."""

import pytest

from splitserve import __version__

from .commands import splitserve

VERBS = ("serve", "up", "demo", "pull", "worker", "gateway", "render", "bench", "lab", "doctor")


def test_the_version_is_the_packages() -> None:
    done = splitserve("--version")
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")


def test_the_help_lists_the_verbs_and_the_exit_codes() -> None:
    done = splitserve("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in done.stdout
    text = " ".join(done.stdout.split())
    assert "2 a setting is wrong; 3 something outside is missing" in text
    assert "130 stopped by Ctrl-C" in text


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    done = splitserve(verb, "--help")
    assert done.returncode == 0
    assert f"Usage: splitserve {verb} " in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [(), ("bench",)])
def test_without_a_verb_the_help_is_shown_and_it_fails(arguments: tuple[str, ...]) -> None:
    done = splitserve(*arguments)
    assert done.returncode == 2
    assert "Usage: splitserve" in done.stderr


def test_flags_for_internal_use_are_not_in_the_help() -> None:
    for verb in ("worker", "gateway", "render"):
        done = splitserve(verb, "--help")
        assert "--parent-pid" not in done.stdout
        assert "--status-fd" not in done.stdout
