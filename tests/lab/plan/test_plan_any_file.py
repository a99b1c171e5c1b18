"""Whatever stands in the file: a plan, or one line that says what is wrong."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from made_plan import CHUNKED, Data, plan_of, running, with_arm

from splitserve.errors import ConfigError
from splitserve.lab.plan.phases import runs_of
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.plan.table import CLASSES, table

AXES = [
    {"name": "prompt_len", "values": ["S", "L"]},
    {"name": "pd_ratio", "values": ["1:1"], "total": 2},
]
ANYTHING = st.one_of(
    st.sampled_from(["", "one", "split", "L", "../topologies", "closed", "x\ny"]),
    st.sampled_from([0, -1, 1, 10**20, 0.5, -0.5, 5e-324, 1e308, float("inf"), float("nan")]),
    st.sampled_from([True, [], {}, ["S"], [1], [0.5], {"S": 1}, {"url": "http://h"}]),
)


def whole() -> Data:
    return with_arm(CHUNKED, axes=AXES, stats={"pairs": 4}, metrics={"quantiles": [0.5, 0.95]})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container below ``value`` with each of its keys."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield value, key
        yield from places(inner)


def outcome(made: Data) -> tuple[str, Plan | None]:
    try:
        return "", plan_of(made)
    except ConfigError as error:
        return str(error), None


@settings(max_examples=120, deadline=None)
@given(st.booleans(), st.integers(0, 200), ANYTHING)
def test_any_value_anywhere_is_a_plan_or_a_plain_refusal(
    urls: bool, place: int, value: object
) -> None:
    made = running() if urls else whole()
    spots = list(places(made))
    container, key = spots[place % len(spots)]
    container[key] = value
    refusal, plan = outcome(made)
    if plan is None:
        assert len(refusal) > 10
        assert len(refusal.splitlines()) == 1
        return
    assert len(plan.digest) == 64
    assert [run.number for run in runs_of(plan)][:1] == [1]
    assert tuple(row.name for row in table(plan)) == CLASSES
