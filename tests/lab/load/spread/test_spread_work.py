"""What passes between the parent and its load processes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.errors import ConfigError
from splitserve.lab.load.driver import Patience
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.schedule import Due
from splitserve.lab.load.spread.work import (
    LENGTH_BYTES,
    Work,
    packed,
    schedule_in,
    split,
    told_in,
    unpacked,
    work_of,
)
from splitserve.lab.load.wire.exchange import Limits

IDS = LoadRequest("a", (5, 6), 3, offset_s=1.5)
CHAT = LoadRequest("b", ({"role": "user", "content": "hi"},), 3, forced=False)
TALK = (
    LoadRequest("t0", (7,), 2, session="t", turn=0),
    LoadRequest("t1", (7, 8, 9), 2, session="t", turn=1, think_s=0.5, follows=True, instead=(4,)),
)


def work(schedule: list[Due], drain_s: float = 10.0) -> Work:
    return work_of(
        ("http://h:1", {"Authorization": "Bearer k"}),
        Asking("m", extra={"cache_salt": "s"}),
        ("A", "3"),
        Limits(gap_s=4.0),
        (Patience(drain_s=drain_s, late_s=0.5), schedule),
    )


def test_a_work_arrives_as_it_was() -> None:
    schedule = [Due(0.5, (IDS,), warmup=True), Due(1.0, (CHAT,)), Due(2.0, TALK)]
    sent = packed(work(schedule))
    assert int.from_bytes(sent[:LENGTH_BYTES], "big") == len(sent) - LENGTH_BYTES
    got = unpacked(sent[LENGTH_BYTES:])
    assert schedule_in(got) == schedule
    without = msgspec.structs.replace
    assert without(got, schedule=()) == without(work(schedule), schedule=())


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.integers(1, 8), st.floats(0.1, 60))
def test_parts_hold_every_request_once_and_wait_equally_long(
    offsets: list[float], processes: int, drain_s: float
) -> None:
    schedule = [Due(at, (LoadRequest(f"r{n}", (1,), 1),)) for n, at in enumerate(offsets)]
    parts = split(work(schedule, drain_s), processes)
    assert len(parts) == min(processes, len(schedule))
    ids = [one.request_id for part in parts for due in schedule_in(part) for one in due.turns]
    assert sorted(ids) == sorted(f"r{n}" for n in range(len(offsets)))
    sizes = [len(part.schedule) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    for part in parts:
        last_s = max(due.at_s for due in part.schedule)
        assert last_s + part.patience.drain_s == pytest.approx(max(offsets) + drain_s)


def test_turns_of_a_conversation_stay_together() -> None:
    parts = split(work([Due(0.0, (IDS,)), Due(1.0, TALK), Due(2.0, (CHAT,))]), 3)
    assert TALK in [due.turns for part in parts for due in schedule_in(part)]


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(ConfigError, match="no work of a load process"):
        unpacked(b"\x93\x01\x02\x03")
    with pytest.raises(ConfigError, match="a load process wrote"):
        told_in(b"Traceback\n")
