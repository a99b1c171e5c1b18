"""When the next worker's turn has come."""

import pytest

from splitserve.launch.roll import what_is_missing
from splitserve.protocol.telemetry import KVCounts, Load


def load(gateways: int = 2, *linked: str) -> Load:
    counts = KVCounts(1, 0, 0, 0, 0, 0)
    return Load(counts, 0, 0, 0, 0, 0, 0, 0, linked=linked, gateways=gateways)


BEFORE = {"p0": load(3), "d0": load(3, "p0", "p1")}


@pytest.mark.parametrize(
    ("after", "missing"),
    [
        (BEFORE, ""),
        ({"p0": load(4), "d0": load(3, "p1", "p0", "p2")}, ""),
        ({"p0": load(3)}, "d0 does not answer"),
        ({"p0": load(1), "d0": load(3, "p0", "p1")}, "2 gateways have not found p0 again"),
        ({"p0": load(3), "d0": load(3)}, "p0, p1 is not linked to d0"),
        ({"p0": load(3), "d0": load(3, "p0")}, "p1 is not linked to d0"),
    ],
)
def test_all_that_there_was_has_to_be_back(after: dict[str, Load], missing: str) -> None:
    assert what_is_missing(BEFORE, after) == missing


def test_a_worker_that_did_not_answer_before_is_not_waited_for() -> None:
    assert what_is_missing({}, {"p0": load()}) == ""
