"""All pools of a worker as one connection: it is whole or it is not there, and costs one pool
nothing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_pools import ShardedPools, copied
from splitserve.errors import BugError, ConfigError, PeerError, ProtocolMismatch, TransferFailed
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import PeerId, Route, TransferEvent
from splitserve.transfer.connectors.memory import MemoryConnector
from splitserve.transfer.connectors.shm import ShmConnector
from splitserve.transfer.plan import Span, spans
from splitserve.transfer.sharded import LONGEST_DESCRIPTION, ShardedConnector

LAYOUT = KVLayout("bfloat16", 2, 6, 8, 4, 10, 2)
FIRST = Span(0, 0, 16)


class Watched(MemoryConnector):
    """Says which peers are connected and whether it is open. One of its peers cannot be reached."""

    unreachable: bytes | None = None

    def __init__(self) -> None:
        super().__init__()
        self.is_open = False
        self.closings = 0

    def open(self, region: MemoryRegion, layout: KVLayout) -> None:
        super().open(region, layout)
        self.is_open = True

    def connect(self, peer: bytes) -> PeerId:
        if peer == self.unreachable:
            raise TransferFailed("nobody is there")
        return super().connect(peer)

    @property
    def connected(self) -> list[PeerId]:
        return list(self._peers)

    def close(self) -> None:
        super().close()
        self.is_open = False
        self.closings += 1


@dataclass
class Worker:
    """``each`` are the connectors of its pools."""

    pools: ShardedPools
    connector: ShardedConnector
    each: Sequence[Watched]

    def connected(self) -> list[int]:
        return [len(one.connected) for one in self.each]

    def close(self) -> None:
        self.connector.close()
        self.pools.close()

    def told(self) -> list[bytes]:
        """What each pool says of itself."""
        return msgspec.msgpack.decode(self.connector.describe(), type=list[bytes])


def worker(count: int, layout: KVLayout = LAYOUT) -> Worker:
    pools, each = ShardedPools(layout, count), [Watched() for _ in range(count)]
    connector = ShardedConnector(iter(each).__next__)
    connector.open(pools.regions, layout)
    return Worker(pools, connector, each)


Make = Callable[..., Worker]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Worker] = []

    def one(count: int, layout: KVLayout = LAYOUT) -> Worker:
        made.append(worker(count, layout))
        return made[-1]

    yield one
    for held in made:
        held.close()


def encoded(value: object) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:  # an integer of more than 64 bits
        return b""


SHARDS = st.sampled_from([1, 2, 3, 6])


@settings(max_examples=50)
@given(
    ours=SHARDS,
    theirs=SHARDS,
    block_size=st.integers(1, 6),
    start=st.integers(0, 5),
    count=st.integers(1, 6),
    order=st.permutations(range(10)),
)
def test_the_tokens_of_all_heads_move_and_nothing_else(
    ours: int, theirs: int, block_size: int, start: int, count: int, order: list[int]
) -> None:
    other = KVLayout("bfloat16", 2, 6, 8, block_size, 11, 2)
    here, there = worker(ours), worker(theirs, other)
    sent, before = bytes(range(256)) * (LAYOUT.pool_bytes // 256), b"\xfe" * other.pool_bytes
    here.pools.write(sent)
    there.pools.write(before)
    tokens, at_peer = range(start, start + count), range(10, -1, -1)
    for leg in here.connector.legs(here.connector.connect(there.connector.describe())):
        writer = leg.writer(spans(leg.ours, leg.theirs, tokens, order, at_peer))
        for layer in range(LAYOUT.num_layers):
            writer.write(layer)
    assert {event.state for event in here.connector.poll()} == {"done"}
    assert there.pools.read() == copied((sent, LAYOUT), (before, other), tokens, order, at_peer)
    assert here.pools.read() == sent
    here.close()
    there.close()


def test_no_two_pools_transfers_have_the_same_number_and_each_end_is_told_once(make: Make) -> None:
    here, there = make(3), make(2)
    peer = here.connector.connect(there.connector.describe())
    legs = here.connector.legs(peer)
    copiers = [leg.writer([FIRST]).write for leg in legs] + [
        leg.reader([FIRST]).read for leg in legs
    ]
    started = [start(layer) for layer in (0, 1, 0) for start in copiers]
    told = here.connector.poll()
    assert sorted(event.transfer for event in told) == sorted(set(started))
    assert len(started) == 3 * len(copiers) == 3 * 2 * 4
    assert here.connector.poll() == []


def test_with_one_pool_its_connector_is_spoken_to_directly(make: Make) -> None:
    here, there = make(1), make(1)
    peer = here.connector.connect(there.connector.describe())
    (leg,) = here.connector.legs(peer)
    (own,) = here.each
    assert type(leg.writer([FIRST])) is type(own.writer(own.connected[0], [FIRST]))
    assert type(leg.reader([FIRST])) is type(own.reader(own.connected[0], [FIRST]))
    transfer = leg.writer([FIRST]).write(1)
    assert here.connector.poll() == [TransferEvent(transfer, "done", FIRST.nbytes)]


@pytest.mark.parametrize(
    ("ours", "theirs", "connected"),
    [(1, 1, [1]), (1, 3, [3]), (3, 1, [1, 1, 1]), (2, 3, [2, 2]), (3, 3, [1, 1, 1])],
)
def test_pools_that_share_heads_are_connected_and_no_others(
    make: Make, ours: int, theirs: int, connected: list[int]
) -> None:
    here, there = make(ours), make(theirs)
    peer = here.connector.connect(there.connector.describe())
    assert here.connected() == connected
    assert sorted(head for leg in here.connector.legs(peer) for head in leg.heads) == [*range(6)]
    assert here.connector.route(peer) == Route("memory")
    here.connector.disconnect(peer)
    assert here.connected() == [0] * ours
    here.connector.disconnect(peer)


def test_one_of_two_peers_is_left_and_the_other_stays(make: Make) -> None:
    here, there = make(2), make(3)
    left, stays = (here.connector.connect(there.connector.describe()) for _ in range(2))
    writers = [leg.writer([FIRST]) for leg in here.connector.legs(left)]
    here.connector.disconnect(left)
    for writer in writers:
        writer.write(0)
    assert {event.state for event in here.connector.poll()} == {"failed"}
    for leg in here.connector.legs(stays):
        leg.writer([FIRST]).write(0)
    assert {event.state for event in here.connector.poll()} == {"done"}
    with pytest.raises(BugError, match="not connected"):
        here.connector.legs(left)
    with pytest.raises(BugError, match="not connected"):
        here.connector.route(left)


def test_where_the_last_pool_cannot_be_reached_none_stays_connected(make: Make) -> None:
    here, there = make(2), make(3)
    here.each[1].unreachable = there.told()[2]
    with pytest.raises(TransferFailed, match="nobody is there"):
        here.connector.connect(there.connector.describe())
    assert here.connected() == [0, 0]
    here.each[1].unreachable = None
    here.connector.connect(there.connector.describe())
    assert here.connected() == [2, 2]


Change = Callable[[list[bytes]], list[bytes]]


def changed(**changes: object) -> Change:
    """The last pool says something else of its layout."""

    def change(pools: list[bytes]) -> list[bytes]:
        last = msgspec.msgpack.decode(pools[-1])
        last["layout"].update(changes)
        return [*pools[:-1], msgspec.msgpack.encode(last)]

    return change


REFUSED: dict[str, tuple[Change, str]] = {
    "no pools": (lambda pools: [], "0 KV pools"),
    "more pools than heads": (lambda pools: [*pools, *pools, *pools], "9 KV pools for 6"),
    "a pool is missing": (lambda pools: pools[:2], r"heads \[4, 5\] are not in"),
    "the first pool is missing": (lambda pools: pools[1:], r"heads \[0, 1\] are not in"),
    "a pool comes twice": (lambda pools: [*pools, pools[1]], r"several .* heads \[2\]"),
    "pools overlap": (changed(first_kv_head=3), r"several .* heads \[3\]"),
    "heads that the model lacks": (changed(first_kv_head=5), "no KV pool"),
    "another number of heads": (changed(total_kv_heads=8), "model_kv_heads"),
    "another size of blocks": (changed(block_size=2), "differ in block_size: 4, 2"),
    "another number of blocks": (changed(num_blocks=9), "differ in num_blocks: 10, 9"),
    "a pool smaller than it says": (changed(num_blocks=11), "bytes"),
    "a pool that is none": (lambda pools: [*pools[:2], b"\xc1"], "not of connector memory"),
    "an empty pool": (lambda pools: [*pools[:2], b""], "not of connector memory"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_pools_that_are_not_one_whole_model_are_refused(make: Make, case: str) -> None:
    change, reason = REFUSED[case]
    here, there = make(2), make(3)
    with pytest.raises(ProtocolMismatch, match=reason):
        here.connector.connect(msgspec.msgpack.encode(change(there.told())))
    assert here.connected() == [0, 0]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (b"", "no KV pools"),
        (b"\xc1", "no KV pools"),
        (b"\x91" * 5000, "no KV pools"),
        (msgspec.msgpack.encode(["text"]), "no KV pools"),
        (msgspec.msgpack.encode({"pid": 1}), "no KV pools"),
        (bytes(LONGEST_DESCRIPTION + 1), "limit"),
    ],
    ids=["nothing", "no msgpack", "nested", "text", "one pool", "too long"],
)
def test_what_describes_no_pools_is_refused(make: Make, told: bytes, reason: str) -> None:
    with pytest.raises(ProtocolMismatch, match=reason):
        make(2).connector.connect(told)


def test_a_pool_that_lacks_heads_of_its_own_is_not_connected_to(make: Make) -> None:
    """Half a block would be worthless to either side."""
    half = msgspec.structs.replace(LAYOUT, num_kv_heads=3, total_kv_heads=6)
    here, there = make(1), make(1, half)
    with pytest.raises(ProtocolMismatch, match=r"heads \[3, 4, 5\] are not in"):
        here.connector.connect(there.connector.describe())
    with pytest.raises(ProtocolMismatch, match=r"heads \[3, 4, 5\] are not in"):
        there.connector.connect(here.connector.describe())
    assert here.connected() == there.connected() == [0]


PART = st.binary(max_size=40) | st.integers() | st.text(max_size=5) | st.none()


@settings(max_examples=50)
@given(
    st.binary(max_size=200)
    | st.recursive(PART, lambda inner: st.lists(inner, max_size=3), max_leaves=8).map(encoded)
)
def test_whatever_bytes_come_nothing_worse_than_a_refusal_comes_of_them(told: bytes) -> None:
    here = worker(2)
    with pytest.raises(PeerError):
        here.connector.connect(told)
    here.close()


def test_a_peer_with_another_connector_is_refused_with_its_reason(make: Make) -> None:
    pools = ShardedPools(LAYOUT, 2)
    other = ShardedConnector(ShmConnector)
    other.open(pools.regions, LAYOUT)
    with pytest.raises(ProtocolMismatch, match="not of connector memory"):
        make(2).connector.connect(other.describe())
    other.close()
    pools.close()


def test_closing_closes_the_connectors_of_all_pools_and_may_be_done_twice(make: Make) -> None:
    here = make(3)
    peer = here.connector.connect(make(2).connector.describe())
    for _ in range(2):
        here.connector.close()
        assert [one.is_open for one in here.each] == [False] * 3
    assert here.connected() == [0, 0, 0]
    with pytest.raises(BugError, match="not connected"):
        here.connector.legs(peer)
    here.connector.disconnect(peer)
    assert here.connector.poll() == []


def test_where_one_pool_cannot_be_used_none_stays_open() -> None:
    pools, each = ShardedPools(LAYOUT, 3), [Watched() for _ in range(3)]
    first, second, third = pools.regions
    small = MemoryRegion(third.address, third.nbytes - 1)
    connector = ShardedConnector(iter(each).__next__)
    with pytest.raises(BugError, match="bytes"):
        connector.open([first, second, small], LAYOUT)
    assert [(one.is_open, one.closings) for one in each] == [(False, 1)] * 3
    with pytest.raises(BugError, match="before open"):
        connector.describe()
    pools.close()


def test_heads_that_cannot_be_shared_out_are_refused() -> None:
    pools = ShardedPools(LAYOUT, 2)
    with pytest.raises(ConfigError, match="KV heads"):
        ShardedConnector(MemoryConnector).open(pools.regions * 2, LAYOUT)
    pools.close()


def test_before_it_is_open_nothing_ends_and_nothing_can_be_asked() -> None:
    connector = ShardedConnector(MemoryConnector)
    assert connector.poll() == []
    connector.close()
    for ask in (connector.describe, lambda: connector.connect(b"")):
        with pytest.raises(BugError, match="before open"):
            ask()
