"""Arms that send other numbers of tokens at a time."""

import pytest
from made_records import record_of

from splitserve.lab.load.record import Counting
from splitserve.lab.measure.latency import gaps, tokens_per_event
from splitserve.lab.run.events import coarser_size, in_events_of

FINE = [record_of(f"r{at}", at, 0.5, sizes=[1] * 41) for at in range(3)]
COARSE = [record_of(f"r{at}", at, 0.5, sizes=[1] + [4] * 10, gap_s=0.4) for at in range(3)]


def test_the_size_is_the_coarser_ones_whichever_side_it_is_on() -> None:
    assert tokens_per_event(COARSE[0]) == pytest.approx(41 / 11)
    assert coarser_size(FINE, COARSE) == coarser_size(COARSE, FINE) == 4


def test_arms_that_are_alike_or_do_not_count_are_left_alone() -> None:
    nearly = [record_of("r", 0, 0.5, sizes=[1] * 39 + [2])]
    assert coarser_size(FINE, FINE) is None
    assert coarser_size(FINE, nearly) is None
    uncounted = [record_of("r", 0, 0.5, sizes=[1, 9])]
    uncounted[0].counting = Counting.EVENTS
    assert coarser_size(FINE, uncounted) is None
    assert coarser_size(FINE, []) is None


def test_events_put_together_give_the_gaps_of_the_coarser_sender() -> None:
    found = gaps(in_events_of(FINE, 4)[0])
    assert found == pytest.approx(gaps(COARSE[0]))
    assert gaps(FINE[0]) == pytest.approx([0.1] * 40)
