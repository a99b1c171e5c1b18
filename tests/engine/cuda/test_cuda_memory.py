"""The pool gets what is left of the GPU, or what was asked for if that is there."""

import pytest

from splitserve.engine.cuda.memory import GIB, MemoryPlan, plan_memory
from splitserve.errors import ConfigError


def plan(asked: int | None = None, utilization: float = 0.9, others: int = GIB) -> MemoryPlan:
    return plan_memory(
        total=100 * GIB,
        others=others,
        weights=15 * GIB,
        work=3 * GIB,
        graphs=GIB,
        utilization=utilization,
        asked=asked,
    )


def test_the_pool_is_what_the_share_leaves() -> None:
    assert plan().pool == 71 * GIB
    assert plan(utilization=0.5).pool == 31 * GIB


def test_two_that_share_a_gpu_each_get_their_share() -> None:
    first = plan(utilization=0.45, others=0).pool
    assert plan(utilization=0.45, others=45 * GIB).pool == first == 26 * GIB


def test_a_pool_that_was_asked_for_may_go_beyond_the_share() -> None:
    assert plan(asked=75 * GIB).pool == 75 * GIB


def test_no_room_names_figures_and_cure() -> None:
    with pytest.raises(ConfigError, match=r"weights 15\.0.*others 90\.0.*gpu_memory_utilization"):
        plan(others=90 * GIB)


def test_a_pool_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"KV pool of 90\.0 GiB does not fit.*lower kv_cache"):
        plan(asked=90 * GIB)


def test_the_plan_says_every_part() -> None:
    assert str(plan()) == (
        "weights 15.0, KV pool 71.0, a largest step 3.0, graphs 1.0, others 1.0, of 100.0 GiB"
    )
