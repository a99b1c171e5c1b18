"""Engines by name."""

import pytest
from engine_rig import ask, drain, expected, fake_config, tokens_of

from splitserve.engine.config import EngineConfig, SchedulerConfig
from splitserve.engine.registry import RUNNERS, create_engine, runner_target
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


@pytest.mark.parametrize(
    ("name", "device", "target"),
    [
        ("native", "cpu", "splitserve.engine.native:NativeRunner"),
        ("native", "cuda", "splitserve.engine.cuda.runner:CudaRunner"),
        ("native", "cuda:3", "splitserve.engine.cuda.runner:CudaRunner"),
        ("fake", "cpu", "splitserve.engine.fake:FakeRunner"),
    ],
)
def test_the_device_decides_which_runner_an_engine_has(name: str, device: str, target: str) -> None:
    assert runner_target(name, device) == target


def test_an_engine_that_does_not_run_on_a_device_says_where_it_does() -> None:
    with pytest.raises(ConfigError, match="'fake' does not run on cuda; its device is cpu"):
        runner_target("fake", "cuda:0")


def test_a_device_that_is_none_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match="device 'tpu' is unknown; write cpu, cuda or cuda:N"):
        create_engine("native", EngineConfig("no-such-model", device="tpu"))


def test_limits_that_let_nothing_run_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_num_batched_tokens is 4"):
        create_engine("fake", fake_config(scheduler=SchedulerConfig(max_num_batched_tokens=4)))
