"""What of a step's blocks a prefill worker writes into a grant."""

from ctypes import addressof, create_string_buffer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.engine.api import PushSpan
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.handoff import GrantTarget
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.roles.push import Pusher, wanted_spans
from splitserve.transfer.connectors.memory import MemoryConnector
from splitserve.transfer.plan import Span
from splitserve.transfer.sharded import ShardedConnector

OURS = KVLayout("bfloat16", 2, 1, 1, 4, 64, 1)
"""One byte for a token's K and one for its V."""

SIX_HEADS = KVLayout("bfloat16", 2, 6, 8, 4, 12, 2)


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


class Pools:
    """A worker's pools in this process: ``count`` share out the heads."""

    def __init__(self, layout: KVLayout, count: int) -> None:
        self._memory = [create_string_buffer(share.pool_bytes) for share in layout.shards(count)]
        self.connector = ShardedConnector(MemoryConnector)
        self.connector.open(
            [MemoryRegion(addressof(pool), len(pool)) for pool in self._memory], layout
        )


@pytest.mark.parametrize(("here", "there", "legs"), [(1, 1, 1), (2, 1, 2), (1, 3, 3), (2, 3, 4)])
def test_a_layer_is_one_write_between_any_two_pools_that_share_heads(
    here: int, there: int, legs: int
) -> None:
    ours, theirs = Pools(SIX_HEADS, here), Pools(SIX_HEADS, there)
    connector, request = ours.connector, RequestId("r")
    pusher = Pusher(connector)
    pusher.open(request, connector.connect(theirs.connector.describe()), target(0, 3, 4))
    push = pusher.get(request)
    assert push is not None
    pusher.begin([span(0, 5, 6)])
    for layer in range(SIX_HEADS.num_layers):
        pusher.on_layer(layer)
        assert len(push.open_transfers) == legs
        pusher.take(connector.poll())
        assert push.open_transfers == set()
        assert push.kv_bytes == 2 * SIX_HEADS.block_bytes * (layer + 1)
    assert push.error == ""


@pytest.mark.parametrize("shards", [1, 2])
def test_a_write_that_failed_is_the_pushs_error(shards: int) -> None:
    """The peer is gone once its pools are known."""
    ours, theirs = Pools(SIX_HEADS, shards), Pools(SIX_HEADS, 1)
    connector, request = ours.connector, RequestId("r")
    pusher = Pusher(connector)
    peer = connector.connect(theirs.connector.describe())
    pusher.open(request, peer, target(0, 3))
    connector.disconnect(peer)
    pusher.begin([span(0, 5)])
    pusher.on_layer(0)
    pusher.take(connector.poll())
    push = pusher.get(request)
    assert push is not None
    assert "not connected" in push.error
    assert push.open_transfers == set()
