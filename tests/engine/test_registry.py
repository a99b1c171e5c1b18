"""Engines by name."""

import pytest
from engine_rig import ask, drain, expected, fake_config, tokens_of

from splitserve.engine.config import SchedulerConfig
from splitserve.engine.registry import RUNNERS, create_engine
from splitserve.errors import ConfigError


def test_an_engine_is_made_by_its_name() -> None:
    config = fake_config()
    engine = create_engine("fake", config)
    request = ask("r", [1, 2, 3])
    engine.add(request)
    assert tokens_of(drain(engine), "r") == expected(request, config)
    engine.close()


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'fast' is unknown; there are fake, native"):
        create_engine("fast", fake_config())
    assert set(RUNNERS) == {"fake", "native"}


def test_limits_that_let_nothing_run_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 4"):
        create_engine("fake", fake_config(scheduler=SchedulerConfig(max_num_batched_tokens=4)))
