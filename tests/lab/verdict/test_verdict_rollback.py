"""The rollback proof: every condition is needed."""

import math

import pytest
from made_study import proof

from splitserve.lab.stats.paired import differences, ratios
from splitserve.lab.verdict.rollback import unmet

WORSE = ratios([1.0] * 6, [1.2, 1.21, 1.19, 1.2, 1.2, 1.21])


def test_a_whole_proof_lacks_nothing() -> None:
    assert unmet(proof()) == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"return_s": 601.0}, "the return took too long"),
        ({"return_s": math.inf}, "the return took too long"),
        ({"in_flight_as_planned": False}, "requests in flight did not end as planned"),
        ({"config_lines_changed": 1}, "the configuration is not the one before"),
        ({"processes_left": 1}, "processes of the split are alive"),
        ({"gpu_memory_above_mib": 257.0}, "GPU memory was not given back"),
        ({"ports_left_open": 1}, "ports of the split are open"),
        ({"kv_leases_left": 1}, "KV leases are left"),
        ({"same_outputs": False}, "greedy answers changed"),
        ({"ttft": WORSE}, "TTFT is not as before"),
        ({"tail_itl": WORSE}, "tail ITL is not as before"),
        (
            {"attainment": differences([1.0] * 6, [0.8, 0.82, 0.81, 0.8, 0.79, 0.8])},
            "attainment is not as before",
        ),
        ({"ttft": ratios([1.0] * 2, [1.0, 1.5])}, "TTFT is not shown to be as before"),
    ],
)
def test_one_missing_condition_is_named(changes: dict[str, object], says: str) -> None:
    assert [one.says for one in unmet(proof(**changes))] == [says]
