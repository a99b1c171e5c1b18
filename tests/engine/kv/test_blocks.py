"""The ledger of KV blocks, by example."""

import pytest

from splitserve.engine.kv.blocks import BlockPool
from splitserve.errors import BugError
from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.telemetry import KVCounts

H, OTHER = HandoffId("r#0"), HandoffId("r#1")
P, Q = WorkerId("prefill-0"), WorkerId("prefill-1")


def counts(pool: BlockPool) -> dict[str, int]:
    """The states that are not empty."""
    found = pool.counts()
    assert found.total == pool.num_blocks
    return {
        state: getattr(found, state)
        for state in KVCounts.__struct_fields__
        if getattr(found, state)
    }


def cache(pool: BlockPool, *digests: bytes) -> list[int]:
    blocks = pool.allocate(len(digests))
    assert blocks is not None
    for block, digest in zip(blocks, digests, strict=True):
        assert pool.register(block, digest)
    pool.free(blocks)
    return blocks


def granted(pool: BlockPool, handoff: HandoffId = H, writer: WorkerId = P, n: int = 2) -> int:
    grant = pool.grant(handoff, writer, n)
    assert grant is not None
    return grant[0]


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(4)
    assert pool.allocate(5) is None
    assert counts(pool) == {"free": 4}
    blocks = pool.allocate(4)
    assert blocks is not None
    assert sorted(blocks) == [0, 1, 2, 3]
    assert pool.allocate(1) is None
    assert pool.allocate(0) == []


def test_freed_blocks_are_cached_if_they_have_a_name() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    assert blocks is not None
    pool.register(blocks[0], b"a")
    pool.free(blocks)
    assert counts(pool) == {"free": 3, "cached": 1}
    assert pool.find([b"a"]) == [blocks[0]]


def test_free_blocks_are_handed_out_before_cached_ones_and_the_end_of_a_prefix_goes_first() -> None:
    pool = BlockPool(4)
    head, tail = cache(pool, b"a", b"b")
    assert pool.allocate(2) is not None
    assert pool.find([b"a", b"b"]) == [head, tail]
    assert pool.allocate(1) == [tail]
    assert pool.find([b"a", b"b"]) == [head]


def test_a_shared_block_is_free_for_eviction_only_after_its_last_holder() -> None:
    pool = BlockPool(2)
    (block,) = cache(pool, b"a")
    one = pool.allocate(0, [block])
    two = pool.allocate(0, [block])
    assert one == two == [block]
    pool.free([block])
    assert counts(pool) == {"free": 1, "held": 1}
    assert pool.allocate(2) is None
    pool.free([block])
    assert counts(pool) == {"free": 1, "cached": 1}


def test_sharing_a_cached_block_takes_it_from_the_room_for_fresh_ones() -> None:
    pool = BlockPool(2)
    (block,) = cache(pool, b"a")
    assert pool.room() == 2
    assert pool.room([block]) == 1
    assert pool.allocate(2, [block]) is None
    assert pool.grant(H, P, 2, [block]) is None
    assert counts(pool) == {"free": 1, "cached": 1}
    blocks = pool.allocate(1, [block])
    assert blocks is not None
    assert len(set(blocks)) == 2


def test_an_exported_block_counts_as_held_while_it_is_also_held() -> None:
    pool = BlockPool(2)
    (block,) = cache(pool, b"a")
    pool.allocate(0, [block])
    pool.export([block])
    assert counts(pool) == {"free": 1, "exported": 1}
    assert pool.find([b"a"]) == [block]
    pool.allocate(0, [block])
    assert counts(pool) == {"free": 1, "held": 1}
    pool.free([block])
    assert counts(pool) == {"free": 1, "exported": 1}
    pool.release([block])
    assert counts(pool) == {"free": 1, "cached": 1}


def test_exported_blocks_are_never_evicted() -> None:
    pool = BlockPool(1)
    (block,) = cache(pool, b"a")
    pool.allocate(0, [block])
    pool.export([block])
    assert pool.allocate(1) is None


def test_a_grant_is_activated_once_and_with_its_own_epoch_only() -> None:
    pool = BlockPool(4)
    epoch = granted(pool)
    assert counts(pool) == {"free": 2, "granted": 2}
    assert pool.activate(H, epoch + 1) is None
    assert pool.activate(OTHER, epoch) is None
    blocks = pool.activate(H, epoch)
    assert blocks is not None
    assert pool.activate(H, epoch) is None
    assert counts(pool) == {"free": 2, "held": 2}
    pool.free(blocks)
    assert counts(pool) == {"free": 4}


def test_a_cancelled_grant_is_quarantined_until_its_fence() -> None:
    pool = BlockPool(3)
    epoch = granted(pool)
    assert pool.cancel(H) == epoch
    assert pool.cancel(H) is None
    assert counts(pool) == {"free": 1, "quarantined": 2}
    assert pool.allocate(2) is None
    assert pool.activate(H, epoch) is None
    assert not pool.fence(H, epoch + 1)
    assert pool.fence(H, epoch)
    assert not pool.fence(H, epoch)
    assert counts(pool) == {"free": 3}


def test_a_fence_that_came_before_the_cancel_is_remembered() -> None:
    pool = BlockPool(2)
    epoch = granted(pool)
    assert pool.fence(H, epoch)
    assert counts(pool) == {"granted": 2}
    assert pool.activate(H, epoch) is None
    assert pool.cancel(H) == epoch
    assert counts(pool) == {"free": 2}


def test_a_second_life_of_a_handoff_is_not_touched_by_messages_to_the_first() -> None:
    pool = BlockPool(6)
    first = granted(pool)
    pool.cancel(H)
    second = granted(pool)
    assert second != first
    assert pool.activate(H, first) is None
    assert pool.fence(H, first)
    assert counts(pool) == {"free": 4, "granted": 2}
    assert not pool.fence(H, first)
    assert pool.activate(H, second) is not None


def test_a_handoff_has_one_grant_at_a_time() -> None:
    pool = BlockPool(4)
    granted(pool)
    assert pool.grant(H, P, 1) is None
    assert pool.open_grants == 1


def test_a_dead_writer_gives_back_grants_and_quarantine_of_its_own_only() -> None:
    pool = BlockPool(8)
    old = granted(pool, HandoffId("old"))
    pool.cancel(HandoffId("old"))
    granted(pool, H)
    granted(pool, OTHER, Q)
    assert pool.writer_gone(P) == [H]
    assert counts(pool) == {"free": 6, "granted": 2}
    assert pool.writer_gone(P) == []
    assert not pool.fence(HandoffId("old"), old)
    assert pool.cancel(H) is None


@pytest.mark.parametrize("order", [["fence", "gone"], ["gone", "fence"]])
def test_blocks_come_back_once_whatever_confirms_first(order: list[str]) -> None:
    pool = BlockPool(2)
    epoch = granted(pool)
    pool.cancel(H)
    for confirmation in order:
        if confirmation == "fence":
            pool.fence(H, epoch)
        else:
            pool.writer_gone(P)
    assert counts(pool) == {"free": 2}
    blocks = pool.allocate(2)
    assert blocks is not None
    assert len(set(blocks)) == 2


def test_a_grant_of_no_blocks_is_a_grant() -> None:
    pool = BlockPool(1)
    (block,) = cache(pool, b"a")
    grant = pool.grant(H, P, 0, [block])
    assert grant is not None
    epoch, fresh = grant
    assert fresh == []
    assert counts(pool) == {"held": 1}
    assert pool.activate(H, epoch) == [block]
    pool.free([block])
    assert counts(pool) == {"cached": 1}


@pytest.mark.parametrize("end", ["fence", "gone"])
def test_what_a_voided_grant_builds_on_stays_until_nobody_can_read_it(end: str) -> None:
    pool = BlockPool(3)
    (block,) = cache(pool, b"a")
    grant = pool.grant(H, P, 1, [block])
    assert grant is not None
    epoch, _ = grant
    assert pool.cancel(H) == epoch
    assert counts(pool) == {"free": 1, "held": 1, "quarantined": 1}
    assert pool.allocate(2) is None
    assert pool.find([b"a"]) == [block]
    if end == "fence":
        assert pool.fence(H, epoch)
    else:
        assert pool.writer_gone(P) == []
    assert counts(pool) == {"free": 2, "cached": 1}


def test_a_grant_whose_fence_came_first_gives_back_what_it_builds_on_with_the_cancel() -> None:
    pool = BlockPool(2)
    (block,) = cache(pool, b"a")
    grant = pool.grant(H, P, 1, [block])
    assert grant is not None
    assert pool.fence(H, grant[0])
    assert counts(pool) == {"held": 1, "granted": 1}
    pool.cancel(H)
    assert counts(pool) == {"free": 1, "cached": 1}


def test_named_blocks_are_offered_once_and_keep_their_content_until_they_are_released() -> None:
    pool = BlockPool(3)
    first, second = cache(pool, b"a", b"b")
    assert pool.offer(1) == [(b"a", first)]
    assert counts(pool) == {"free": 1, "cached": 1, "exported": 1}
    assert pool.allocate(3) is None
    assert pool.offer(5) == [(b"b", second)]
    assert pool.offer(5) == []
    pool.release([first, second])
    assert counts(pool) == {"free": 1, "cached": 2}
    assert pool.offer(5) == []


def test_what_was_offered_is_not_evicted_though_it_was_unused_for_the_longest_time() -> None:
    pool = BlockPool(2)
    (first,) = cache(pool, b"a")
    (second,) = cache(pool, b"b")
    assert pool.offer(1) == [(b"a", first)]
    assert pool.allocate(1) == [second]
    assert pool.find([b"a"]) == [first]
    assert pool.allocate(1) is None
    pool.release([first])
    assert pool.allocate(1) == [first]


def test_a_block_that_was_evicted_is_not_offered_and_its_name_is_again_once_it_is_back() -> None:
    pool = BlockPool(1)
    cache(pool, b"a")
    (block,) = cache(pool, b"b")
    assert pool.offer(5) == [(b"b", block)]
    pool.release([block])
    cache(pool, b"a")
    assert pool.offer(5) == [(b"a", block)]
    pool.release([block])


def test_a_block_that_is_held_is_offered_too() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    assert blocks is not None
    pool.register(blocks[0], b"a")
    assert pool.offer(5) == [(b"a", blocks[0])]
    assert counts(pool) == {"free": 1, "held": 1}
    pool.free(blocks)
    assert counts(pool) == {"free": 1, "exported": 1}
    pool.release(blocks)
    assert counts(pool) == {"free": 1, "cached": 1}


def test_our_own_mistakes_are_bugs() -> None:
    pool = BlockPool(1)
    for mistake in (pool.free, pool.export, pool.release):
        with pytest.raises(BugError):
            mistake([0])
    with pytest.raises(BugError):
        pool.register(0, b"a")
    assert counts(pool) == {"free": 1}
