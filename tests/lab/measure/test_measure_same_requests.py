"""Who gains and who pays."""

import math

import pytest

from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.measure.same_requests import shifts


def record(name: str, ended_s: float) -> RequestRecord:
    return RequestRecord(
        request_id=name,
        arm="a",
        run="0",
        intended_s=0.0,
        sent_s=0.0,
        first_byte_s=None,
        events=[],
        ended_s=ended_s,
        outcome=Outcome.OK,
        counting=Counting.IDS,
    )


def arm(*times: float) -> list[RequestRecord]:
    return [record(f"r{at}", ended_s) for at, ended_s in enumerate(times)]


def end(one: RequestRecord) -> float | None:
    return None if one.ended_s < 0 else one.ended_s


def test_each_request_is_compared_with_itself() -> None:
    found = shifts(arm(1, 2, 4, 8), list(reversed(arm(2, 2, 1, 8.5))), end)
    assert found is not None
    assert found.ratios == pytest.approx((math.log(2), 0, math.log(0.25), math.log(8.5 / 8)))
    assert (found.worse, found.better) == (0.25, 0.25)
    assert found.median == pytest.approx(math.log(8.5 / 8) / 2)


def test_failures_count_unless_both_failed() -> None:
    found = shifts(arm(1, math.inf, math.inf, 1), arm(math.inf, 1, math.inf, 1), end)
    assert found is not None
    assert found.ratios == (math.inf, -math.inf, 0.0)
    assert (found.worse, found.median) == (pytest.approx(1 / 3), 0.0)


def test_without_a_common_request_there_is_nothing_to_tell() -> None:
    assert shifts(arm(1), [record("other", 1)], end) is None
    assert shifts(arm(-1), arm(1), end) is None
