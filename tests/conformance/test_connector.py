"""What every connector promises, run over each of them: writing and reading, between equal and
unequal layouts.

Both pools lie in this process, but for connector cuda_ipc, which needs a GPU and whose peer's pool
lies in a child process.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from shared_pools import ShardedPools, SharedPool, copied
from splitserve.errors import BugError, ConfigError, PeerError, ProtocolMismatch
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.transfer.base import Connector, PeerId, TransferEvent, TransferId
from splitserve.transfer.plan import Span, spans
from splitserve.transfer.registry import CONNECTORS, PACKAGES, create_connector
from splitserve.transfer.sharded import ShardedConnector

LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 10, 2)
SAME_SHAPE = KVLayout("bfloat16", 3, 2, 8, 4, 13, 2)
PEER_LAYOUTS = {
    "same_shape": SAME_SHAPE,
    "larger_blocks": KVLayout("bfloat16", 3, 2, 8, 8, 7, 2),
    "odd_blocks": KVLayout("bfloat16", 3, 2, 8, 3, 17, 2),
    "second_head": KVLayout("bfloat16", 3, 1, 8, 4, 13, 2, first_kv_head=1, total_kv_heads=2),
    "first_head_larger_blocks": KVLayout("bfloat16", 3, 1, 8, 8, 7, 2, total_kv_heads=2),
}
BLOCK = LAYOUT.block_bytes
ALL = Span(0, 0, LAYOUT.layer_bytes)
FIRST = Span(0, 0, BLOCK)

"""What a connector's optional dependency is imported as."""

CHILD = """
import hashlib, sys
sys.path[:0] = sys.argv[2:]
from shared_pools import SharedPool
from test_connector import LAYOUT
from splitserve.transfer.registry import create_connector
pool = SharedPool(LAYOUT)
connector = create_connector(sys.argv[1])
connector.open(pool.region, LAYOUT)
print(connector.describe().hex(), flush=True)
for line in sys.stdin:
    print(hashlib.sha256(pool.read()).hexdigest(), flush=True)
connector.close()
"""


class Ending(Protocol):
    """A connector, or those of several pools."""

    def poll(self) -> list[TransferEvent]: ...


class Pool(Protocol):
    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...


def some_bytes(layout: KVLayout, seed: int) -> bytes:
    return hashlib.shake_256(bytes([seed])).digest(layout.pool_bytes)


def after(
    wanted: Sequence[Span],
    layer: int,
    source: tuple[bytes, KVLayout],
    target: tuple[bytes, KVLayout],
) -> bytes:
    """The target's bytes once ``wanted`` of ``layer`` have arrived and nothing else."""
    held = bytearray(target[0])
    for span in wanted:
        read = layer * source[1].layer_bytes + span.source
        write = layer * target[1].layer_bytes + span.target
        held[write : write + span.nbytes] = source[0][read : read + span.nbytes]
    return bytes(held)


@dataclass
class Pair:
    """A connector over a pool of random bytes, and a peer's pool of zeros of which ``description``
    tells it."""

    connector: Connector
    own: Pool
    theirs: Pool
    their_layout: KVLayout
    description: bytes

    def connect(self) -> PeerId:
        return self.connector.connect(self.description)

    def zeros(self) -> bytes:
        return bytes(self.their_layout.pool_bytes)

    def written(self, layer: int, wanted: Sequence[Span]) -> bytes:
        """The peer's pool once ``wanted`` of ``layer`` was written into it."""
        own, theirs = (self.own.read(), LAYOUT), (self.zeros(), self.their_layout)
        return after(wanted, layer, own, theirs)


def over(names: Iterable[str]) -> list[Any]:
    """Those that need more than this machine are run by ``make gpu`` and ``make interop``."""
    marks = {"cuda_ipc": pytest.mark.gpu} | dict.fromkeys(PACKAGES, pytest.mark.interop)
    return [pytest.param(name, marks=marks.get(name, ())) for name in sorted(names)]


@pytest.fixture(params=over(CONNECTORS))
def name(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name], exc_type=ImportError)
    return name


@pytest.fixture
def pair(name: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """``indirect`` parameter: the peer's layout, by name."""
    layout = PEER_LAYOUTS[getattr(request, "param", "same_shape")]
    yield from device_pair(request, layout) if name == "cuda_ipc" else local_pair(name, layout)


def local_pair(name: str, layout: KVLayout) -> Iterator[Pair]:
    own, theirs = SharedPool(LAYOUT), SharedPool(layout)
    own.write(some_bytes(LAYOUT, 1))
    connector, owner = create_connector(name), create_connector(name)
    connector.open(own.region, LAYOUT)
    owner.open(theirs.region, layout)
    yield Pair(connector, own, theirs, layout, owner.describe())
    connector.close()
    owner.close()
    own.close()
    theirs.close()


def device_pair(request: pytest.FixtureRequest, layout: KVLayout) -> Iterator[Pair]:
    from device_pools import DeviceSource

    theirs = request.getfixturevalue("device_target")
    own = DeviceSource(LAYOUT)
    own.write(some_bytes(LAYOUT, 1))
    connector = create_connector("cuda_ipc")
    connector.open(own.region, LAYOUT)
    yield Pair(connector, own, theirs, layout, theirs.new(layout))
    connector.close()
    own.close()


@pytest.fixture(scope="module")
def device_target() -> Iterator[object]:
    from device_pools import DeviceTarget

    target = DeviceTarget()
    yield target
    target.close()


def finish(connector: Ending, transfer: TransferId) -> TransferEvent:
    """Polls until the transfer has ended."""
    return ends(connector, [transfer])[transfer]


def ends(connector: Ending, transfers: Sequence[TransferId]) -> dict[TransferId, TransferEvent]:
    """Polls until these have ended, each once, and no other."""
    ended: dict[TransferId, TransferEvent] = {}
    while len(ended) < len(transfers):
        for event in connector.poll():
            assert event.transfer in transfers
            assert event.transfer not in ended
            ended[event.transfer] = event
    return ended


WAYS = {
    "cuda_ipc": {"cuda_ipc"},
    "memory": {"memory"},
    "mooncake": {"tcp"},
    "nixl": {"shm", "tcp", "rdma"},
    "shm": {"shm"},
    "tcp": {"tcp"},
}


def test_the_way_to_a_peer_is_told_while_it_is_connected(name: str, pair: Pair) -> None:
    peer = pair.connect()
    assert pair.connector.route(peer).way in WAYS[name]
    pair.connector.disconnect(peer)
    with pytest.raises(BugError):
        pair.connector.route(peer)


@pytest.mark.parametrize("layer", range(LAYOUT.num_layers))
def test_written_bytes_arrive_where_they_were_sent_and_nowhere_else(pair: Pair, layer: int) -> None:
    wanted = [
        Span(0, 4 * BLOCK, BLOCK),
        Span(2 * BLOCK, 10 * BLOCK, 3 * BLOCK),
        Span(9 * BLOCK, 0, BLOCK),
    ]
    writer = pair.connector.writer(pair.connect(), wanted)
    event = finish(pair.connector, writer.write(layer))
    assert (event.state, event.nbytes, event.error) == ("done", 5 * BLOCK, "")
    assert pair.theirs.read() == pair.written(layer, wanted)
    assert pair.own.read() == some_bytes(LAYOUT, 1)


@pytest.mark.parametrize("layer", range(LAYOUT.num_layers))
def test_read_bytes_arrive_where_they_were_wanted_and_nowhere_else(pair: Pair, layer: int) -> None:
    sent, before = some_bytes(pair.their_layout, 2), pair.own.read()
    pair.theirs.write(sent)
    wanted = [
        Span(4 * BLOCK, 0, BLOCK),
        Span(10 * BLOCK, 2 * BLOCK, 3 * BLOCK),
        Span(0, 9 * BLOCK, BLOCK),
    ]
    reader = pair.connector.reader(pair.connect(), wanted)
    event = finish(pair.connector, reader.read(layer))
    assert (event.state, event.nbytes, event.error) == ("done", 5 * BLOCK, "")
    expected = after(wanted, layer, (sent, pair.their_layout), (before, LAYOUT))
    assert pair.own.read() == expected
    assert pair.theirs.read() == sent


@pytest.mark.parametrize("pair", sorted(PEER_LAYOUTS), indirect=True)
def test_what_goes_to_another_layout_and_back_is_what_it_was(pair: Pair) -> None:
    """Tokens 1 to 13, so that the first block and the last move in part, over scattered blocks."""
    peer = pair.connect()
    ours, theirs = pair.connector.layouts(peer)
    assert (ours, theirs) == (LAYOUT, pair.their_layout)
    tokens = range(1, 14)
    away, back = [7, 2, 3, 0], [8, 9, 5, 4]
    there = [5, 1, 2, 4, 6][: -(-tokens.stop // theirs.block_size)]
    written = spans(ours, theirs, tokens, away, there)
    writer = pair.connector.writer(peer, written)
    finish(pair.connector, writer.write(1))
    assert pair.theirs.read() == pair.written(1, written)
    before = pair.own.read()
    reader = pair.connector.reader(peer, spans(theirs, ours, tokens, there, back))
    finish(pair.connector, reader.read(1))
    # As if the same heads of the same tokens had moved within our own pool.
    half = msgspec.structs.replace(theirs, block_size=4, num_blocks=10)
    through = after(
        spans(ours, half, tokens, away, back), 1, (before, ours), (bytes(half.pool_bytes), half)
    )
    expected = after(spans(half, ours, tokens, back, back), 1, (through, half), (before, ours))
    assert pair.own.read() == expected != before


def test_an_end_is_reported_once(pair: Pair) -> None:
    writer = pair.connector.writer(pair.connect(), [FIRST])
    transfers = [writer.write(layer) for layer in (0, 1, 2, 0, 1)]
    assert len(set(transfers)) == 5
    ends(pair.connector, transfers)
    assert pair.connector.poll() == []


def test_writes_and_reads_run_side_by_side(pair: Pair) -> None:
    peer = pair.connect()
    writer = pair.connector.writer(peer, [FIRST])
    reader = pair.connector.reader(peer, [Span(5 * BLOCK, 5 * BLOCK, BLOCK)])
    transfers = [start(layer) for layer in range(3) for start in (writer.write, reader.read)]
    ended = ends(pair.connector, transfers)
    assert {event.state for event in ended.values()} == {"done"}


@pytest.mark.parametrize("made", ["before", "after"])
def test_nothing_moves_to_or_from_a_disconnected_peer(pair: Pair, made: str) -> None:
    peer = pair.connect()
    writer, reader = pair.connector.writer(peer, [FIRST]), pair.connector.reader(peer, [FIRST])
    pair.connector.disconnect(peer)
    pair.connector.disconnect(peer)
    if made == "after":
        writer, reader = pair.connector.writer(peer, [FIRST]), pair.connector.reader(peer, [FIRST])
    for event in ends(pair.connector, [writer.write(0), reader.read(0)]).values():
        assert (event.state, event.nbytes) == ("failed", 0)
        assert "not connected" in event.error
    assert pair.theirs.read() == pair.zeros()
    assert pair.own.read() == some_bytes(LAYOUT, 1)


def test_disconnect_ends_everything(pair: Pair) -> None:
    peer, stays = pair.connect(), pair.connect()
    writer, reader = pair.connector.writer(peer, [ALL]), pair.connector.reader(peer, [FIRST])
    transfers = [start(layer) for layer in range(3) for start in (writer.write, reader.read)]
    pair.connector.disconnect(peer)
    told = pair.connector.poll()
    assert sorted(event.transfer for event in told) == sorted(transfers)
    arrived, held = pair.theirs.read(), pair.own.read()
    last = [Span(0, 12 * BLOCK, BLOCK)]
    assert finish(pair.connector, pair.connector.writer(stays, last).write(0)).state == "done"
    assert pair.theirs.read() == after(last, 0, (held, LAYOUT), (arrived, pair.their_layout))
    assert pair.own.read() == held


def test_a_peer_can_be_connected_again(pair: Pair) -> None:
    pair.connector.disconnect(pair.connect())
    writer = pair.connector.writer(pair.connect(), [ALL])
    assert finish(pair.connector, writer.write(0)).state == "done"
    assert pair.theirs.read() == pair.written(0, [ALL])


def test_the_layouts_of_a_peer_that_is_not_connected_are_not_known(pair: Pair) -> None:
    peer = pair.connect()
    pair.connector.disconnect(peer)
    with pytest.raises(BugError, match="not connected"):
        pair.connector.layouts(peer)


@pytest.mark.parametrize(
    "span",
    [Span(9 * BLOCK, 0, 2 * BLOCK), Span(-1, 0, BLOCK), Span(0, -1, BLOCK), Span(0, 0, 0)],
    ids=str,
)
def test_bytes_outside_the_pools_are_refused_before_any_byte_moves(pair: Pair, span: Span) -> None:
    peer = pair.connect()
    back = Span(span.target, span.source, span.nbytes)
    with pytest.raises(BugError, match="leaves a layer"):
        pair.connector.writer(peer, [FIRST, span])
    with pytest.raises(BugError, match="leaves a layer"):
        pair.connector.reader(peer, [FIRST, back])
    assert pair.theirs.read() == pair.zeros()


def test_each_side_is_held_to_its_own_pool(pair: Pair) -> None:
    """The peer's pool is the larger one."""
    peer, last = pair.connect(), 12 * BLOCK
    assert pair.connector.writer(peer, [Span(0, last, BLOCK)])
    assert pair.connector.reader(peer, [Span(last, 0, BLOCK)])
    with pytest.raises(BugError, match="leaves a layer"):
        pair.connector.writer(peer, [Span(last, 0, BLOCK)])
    with pytest.raises(BugError, match="leaves a layer"):
        pair.connector.reader(peer, [Span(0, last, BLOCK)])


def test_a_layer_outside_the_pools_is_refused_before_any_byte_moves(pair: Pair) -> None:
    peer = pair.connect()
    with pytest.raises(BugError, match="no layer 3"):
        pair.connector.writer(peer, [FIRST]).write(LAYOUT.num_layers)
    with pytest.raises(BugError, match="no layer -1"):
        pair.connector.reader(peer, [FIRST]).read(-1)
    assert pair.theirs.read() == pair.zeros()


def test_a_foreign_description_is_refused(pair: Pair) -> None:
    with pytest.raises(ProtocolMismatch, match="not of connector"):
        pair.connector.connect(b"\x93\x01\x02\x03")


def test_a_pool_of_another_shape_is_refused_by_name(pair: Pair) -> None:
    other = msgspec.msgpack.decode(pair.description)
    other["layout"]["head_dim"] = 2
    with pytest.raises(ProtocolMismatch, match="head_dim"):
        pair.connector.connect(msgspec.msgpack.encode(other))


def test_a_pool_that_is_smaller_than_it_says_is_refused(pair: Pair) -> None:
    other = msgspec.msgpack.decode(pair.description)
    other["layout"]["num_blocks"] += 1
    with pytest.raises(ProtocolMismatch, match="bytes"):
        pair.connector.connect(msgspec.msgpack.encode(other))


ODD: Sequence[object] = (None, -1, 0, 2**63, 2**64 - 1, 1e300, "", "\0", "x" * 200, b"", [], {})
"""Values that a field of a description might have where a peer is broken or hostile."""

NESTED = b"\x91" * 100_000


@pytest.mark.parametrize("name", sorted(set(CONNECTORS) - {"cuda_ipc", *PACKAGES}))
def test_whatever_a_description_says_nothing_worse_than_a_refusal_comes_of_it(
    name: str, pair: Pair
) -> None:
    told = msgspec.msgpack.decode(pair.description)
    layout = told["layout"]
    others = [
        *({**told, key: odd} for key in told for odd in ODD),
        *({**told, "layout": {**layout, key: odd}} for key in layout for odd in ODD),
        {**told, "more": msgspec.Raw(NESTED)},
    ]
    refused = 0
    for other in others:
        try:
            pair.connector.disconnect(pair.connector.connect(msgspec.msgpack.encode(other)))
        except PeerError:
            refused += 1
    assert refused > len(ODD)


def test_use_before_open_is_a_bug(name: str) -> None:
    with pytest.raises(BugError):
        create_connector(name).describe()


def test_close_may_be_called_twice(pair: Pair) -> None:
    pair.connect()
    pair.connector.close()
    pair.connector.close()


def test_an_unknown_name_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match="shm"):
        create_connector("carrier-pigeon")


HERE = KVLayout("bfloat16", 3, 6, 8, 4, 10, 2)
THERE = {
    "same_blocks": HERE.with_blocks(13),
    "larger_blocks": KVLayout("bfloat16", 3, 6, 8, 8, 7, 2),
    "odd_blocks": KVLayout("bfloat16", 3, 6, 8, 3, 17, 2),
}


@dataclass
class Worker:
    """Its pools and the connectors of them."""

    pools: ShardedPools
    connector: ShardedConnector


@pytest.fixture
def workers(name: str) -> Iterator[Callable[[KVLayout, int], Worker]]:
    """Makes workers by layout and number of shards."""
    made: list[Worker] = []

    def make(layout: KVLayout, count: int) -> Worker:
        made.append(
            Worker(ShardedPools(layout, count), ShardedConnector(lambda: create_connector(name)))
        )
        made[-1].connector.open(made[-1].pools.regions, layout)
        return made[-1]

    yield make
    for worker in made:
        worker.connector.close()
        worker.pools.close()


@pytest.mark.parametrize("name", over(set(CONNECTORS) - {"cuda_ipc"}), indirect=True)
@pytest.mark.parametrize(
    ("ours", "theirs", "blocks"),
    [
        (1, 1, "same_blocks"),
        (1, 2, "same_blocks"),
        (2, 1, "same_blocks"),
        (2, 2, "same_blocks"),
        (2, 3, "same_blocks"),
        (6, 1, "larger_blocks"),
        (3, 2, "odd_blocks"),
    ],
)
def test_between_any_numbers_of_shards_whole_tokens_move_there_and_back(
    workers: Callable[[KVLayout, int], Worker], ours: int, theirs: int, blocks: str
) -> None:
    """Tokens 1 to 13, as above, and all layers at once."""
    layout, tokens = THERE[blocks], range(1, 14)
    here, there = workers(HERE, ours), workers(layout, theirs)
    sent, before = some_bytes(HERE, 1), some_bytes(layout, 2)
    here.pools.write(sent)
    there.pools.write(before)
    away, back, at_peer = [7, 2, 3, 0], [8, 9, 5, 4], [5, 1, 2, 4, 6]
    legs = here.connector.legs(here.connector.connect(there.connector.describe()))
    writers = [leg.writer(spans(leg.ours, leg.theirs, tokens, away, at_peer)) for leg in legs]
    transfers = [writer.write(layer) for layer in range(3) for writer in writers]
    told = ends(here.connector, transfers)
    assert {event.state for event in told.values()} == {"done"}
    assert sum(event.nbytes for event in told.values()) == len(tokens) * HERE.token_bytes
    arrived = copied((sent, HERE), (before, layout), tokens, away, at_peer)
    assert there.pools.read() == arrived != before
    readers = [leg.reader(spans(leg.theirs, leg.ours, tokens, at_peer, back)) for leg in legs]
    transfers = [reader.read(layer) for layer in range(3) for reader in readers]
    assert {event.state for event in ends(here.connector, transfers).values()} == {"done"}
    assert here.pools.read() == copied((sent, HERE), (sent, HERE), tokens, away, back) != sent
    assert there.pools.read() == arrived


@pytest.fixture(params=over(set(CONNECTORS) - {"cuda_ipc", "memory"}))
def crossing(request: pytest.FixtureRequest) -> str:
    """A connector between processes that needs no GPU."""
    name = str(request.param)
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name], exc_type=ImportError)
    return name


@pytest.fixture
def child(crossing: str) -> Iterator[subprocess.Popen[str]]:
    folder = Path(__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, crossing, str(folder), str(folder.parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def ask(process: subprocess.Popen[str], line: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.fixture
def opened(crossing: str) -> Iterator[tuple[Connector, SharedPool]]:
    pool = SharedPool(LAYOUT)
    pool.write(some_bytes(LAYOUT, 7))
    connector = create_connector(crossing)
    connector.open(pool.region, LAYOUT)
    yield connector, pool
    connector.close()
    pool.close()


def test_another_process_is_written_to_and_read_from(
    child: subprocess.Popen[str], opened: tuple[Connector, SharedPool]
) -> None:
    connector, pool = opened
    sent = pool.read()
    peer = connector.connect(bytes.fromhex(ask(child)))
    writer = connector.writer(peer, [ALL])
    done = ends(connector, [writer.write(layer) for layer in range(LAYOUT.num_layers)])
    assert {event.nbytes for event in done.values()} == {LAYOUT.layer_bytes}
    assert ask(child, "digest") == hashlib.sha256(sent).hexdigest()
    pool.write(bytes(LAYOUT.pool_bytes))
    reader = connector.reader(peer, [ALL])
    ends(connector, [reader.read(layer) for layer in range(LAYOUT.num_layers)])
    assert pool.read() == sent


def test_a_peers_death_ends_what_was_started_and_it_is_not_connected_to_again(
    child: subprocess.Popen[str], opened: tuple[Connector, SharedPool]
) -> None:
    connector, _ = opened
    description = bytes.fromhex(ask(child))
    peer = connector.connect(description)
    writer, reader = connector.writer(peer, [ALL]), connector.reader(peer, [ALL])
    finish(connector, writer.write(0))
    child.kill()
    child.wait()
    transfers = [start(layer) for layer in range(3) for start in (writer.write, reader.read)]
    told = connector.poll()
    connector.disconnect(peer)
    told += connector.poll()
    assert sorted(event.transfer for event in told) == sorted(transfers)
    with pytest.raises(PeerError):
        connector.connect(description)


@pytest.mark.parametrize("crossing", ["shm"], indirect=True)
def test_shm_refuses_memory_that_is_not_shared(opened: tuple[Connector, SharedPool]) -> None:
    with pytest.raises(ConfigError, match="shared memory"):
        create_connector("shm").open(MemoryRegion(4096, LAYOUT.pool_bytes), LAYOUT)


@pytest.mark.parametrize("name", ["memory"], indirect=True)
def test_memory_refuses_a_pool_of_another_process(pair: Pair) -> None:
    foreign = msgspec.msgpack.decode(pair.description)
    foreign["pid"] = os.getpid() + 1
    with pytest.raises(PeerError, match="one process"):
        pair.connector.connect(msgspec.msgpack.encode(foreign))
