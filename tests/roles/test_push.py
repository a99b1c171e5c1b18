"""What of a step's blocks a prefill worker writes into a grant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.engine.api import PushSpan
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.handoff import GrantTarget
from splitserve.protocol.memory import KVLayout
from splitserve.roles.push import Pusher, wanted_spans
from splitserve.transfer.base import PeerId
from splitserve.transfer.connectors.memory import MemoryConnector
from splitserve.transfer.plan import Span

OURS = KVLayout("bfloat16", 2, 1, 1, 4, 64, 1)
"""One byte for a token's K and one for its V."""


def target(skip_blocks: int, *blocks: int) -> GrantTarget:
    return GrantTarget(HandoffId("h"), 1, WorkerId("d"), "link", skip_blocks, blocks)


def theirs(block_size: int) -> KVLayout:
    return KVLayout("bfloat16", 2, 1, 1, block_size, 64, 1)


def span(first: int, *blocks: int) -> PushSpan:
    return PushSpan(RequestId("r"), first, blocks)


def tokens_of(wanted: list[Span], grant: GrantTarget, block_size: int) -> list[int]:
    """Which tokens of the prompt have their K written, by where it lands."""
    slots = [w.target + i for w in wanted for i in range(w.nbytes)]
    places = {block: grant.skip_blocks + i for i, block in enumerate(grant.blocks)}
    keys = [divmod(slot, 2 * block_size) for slot in slots]
    return sorted(places[block] * block_size + at for block, at in keys if at < block_size)


def test_blocks_that_the_target_has_are_not_written() -> None:
    block = OURS.block_bytes
    wanted = wanted_spans(span(0, 10, 11, 12, 13), target(2, 30, 31), OURS, OURS)
    assert wanted == [Span(12 * block, 30 * block, 2 * block)]


@pytest.mark.parametrize("first", [0, 6])
def test_blocks_outside_the_grant_are_not_written(first: int) -> None:
    assert wanted_spans(span(first, 10, 11), target(2, 30, 31, 32, 33), OURS, OURS) == []


def test_the_skipped_blocks_are_of_the_targets_size() -> None:
    """Two blocks of two tokens lie there already; of ours, that is the first."""
    grant = target(2, 40, 41, 50)
    wanted = wanted_spans(span(0, 10, 11, 12), grant, OURS, theirs(2))
    assert tokens_of(wanted, grant, 2) == list(range(4, 10))


@given(
    first=st.integers(0, 4),
    count=st.integers(1, 5),
    block_size=st.integers(1, 9),
    skip=st.integers(0, 9),
    granted=st.integers(1, 9),
)
def test_exactly_the_tokens_in_both_are_written(
    first: int, count: int, block_size: int, skip: int, granted: int
) -> None:
    grant = target(skip, *range(20, 20 + granted))
    blocks = range(7, 7 + count)
    wanted = wanted_spans(span(first, *blocks), grant, OURS, theirs(block_size))
    held = range(first * 4, (first + count) * 4)
    room = range(skip * block_size, (skip + granted) * block_size)
    assert tokens_of(wanted, grant, block_size) == [token for token in held if token in room]


def test_a_write_that_failed_is_the_pushs_error() -> None:
    connector = Gone()
    pusher = Pusher(connector)
    request = RequestId("r")
    pusher.open(request, PeerId(1), target(0, 3))
    pusher.begin([span(0, 5)])
    pusher.on_layer(0)
    pusher.take(connector.poll())
    push = pusher.get(request)
    assert push is not None
    assert "not connected" in push.error
    assert push.open_transfers == set()


class Gone(MemoryConnector):
    """Its peer is gone once its layout is known."""

    def layouts(self, peer: PeerId) -> tuple[KVLayout, KVLayout]:
        return OURS, OURS
