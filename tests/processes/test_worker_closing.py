"""In which order a worker's parts are closed: nothing may touch the KV pool once it is freed."""

import logging
from typing import Any

import pytest

from splitserve.errors import UnavailableError
from splitserve.processes.worker import close_parts


class Parts:
    """``closed`` names those that were, in order."""

    def __init__(self, tier_error: Exception | None = None) -> None:
        self.closed: list[str] = []
        self._errors = {"tier": tier_error}

    def part(self, name: str) -> Any:
        """Of any type that can be closed."""
        parts = self

        class Part:
            def close(self) -> None:
                parts.closed.append(name)
                error = parts._errors.get(name)
                if error is not None:
                    raise error

        return Part()


def close(parts: Parts) -> None:
    close_parts(parts.part("connector"), parts.part("tier"), parts.part("engine"))


def test_the_engine_is_closed_after_all_that_touch_its_pool() -> None:
    parts = Parts()
    close(parts)
    assert parts.closed == ["connector", "tier", "engine"]


def test_without_a_tier_the_connector_is_closed_before_the_engine() -> None:
    parts = Parts()
    close_parts(parts.part("connector"), None, parts.part("engine"))
    assert parts.closed == ["connector", "engine"]


def test_a_tier_that_hangs_keeps_the_pool_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts(UnavailableError("the disk does not answer"))
    with caplog.at_level(logging.ERROR, "splitserve.processes.worker"):
        close(parts)
    assert parts.closed == ["connector", "tier"]
    assert "the disk does not answer" in caplog.text


def test_any_other_error_is_not_hidden() -> None:
    parts = Parts(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        close(parts)
    assert parts.closed == ["connector", "tier"]
