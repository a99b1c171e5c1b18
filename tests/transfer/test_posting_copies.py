"""What connectors with a posting thread decide, over a library that ends copies when a test says
so."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from splitserve.errors import BugError, ConfigError, TransferFailed
from splitserve.transfer.base import PeerId, TransferId
from splitserve.transfer.plan import Span
from splitserve.transfer.posting.copies import Copies
from splitserve.transfer.posting.driver import Driver
from splitserve.transfer.posting.pairs import Pairs, Place
from splitserve.transfer.posting.started import End, LayerCopy, Operation, Start

ONE, OTHER = PeerId(1), PeerId(2)
LAYERS = 4


@dataclass(frozen=True)
class Prepared:
    agent: "FakeAgent"
    name: str


@dataclass(eq=False)
class Handle:
    prepared: Prepared
    rows: range
    state: str = "open"
    released: bool = False


@dataclass
class Backend:
    """Every agent that was made, with what it holds."""

    agents: list["FakeAgent"] = field(default_factory=list)
    refuses: str = ""
    is_full: bool = False
    """No more agents can be made."""

    def open(self) -> "FakeAgent":
        if self.is_full:
            raise ConfigError("too many agents")
        self.agents.append(FakeAgent(self))
        return self.agents[-1]


@dataclass
class FakeAgent:
    backend: Backend
    name: str = "own"
    joined: set[str] = field(default_factory=set)
    cannot_join: str = ""
    prepared: int = 0
    handles: list[Handle] = field(default_factory=list)
    is_closed: bool = False

    def metadata(self) -> bytes:
        return b"own"

    def join(self, metadata: bytes) -> str:
        if metadata.decode() == self.cannot_join:
            raise TransferFailed("it does not answer")
        self.joined.add(metadata.decode())
        return metadata.decode()

    def leave(self, name: str) -> None:
        self.joined.remove(name)

    def prepare(self, name: str, operation: Operation, pairs: Pairs) -> Prepared:
        assert name in self.joined
        self.prepared += 1
        return Prepared(self, name)

    def drop(self, prepared: Prepared) -> None:
        assert prepared.agent is self
        self.prepared -= 1

    def post(self, prepared: Prepared, rows: range) -> Handle:
        assert prepared.agent is self
        if self.backend.refuses:
            raise TransferFailed(self.backend.refuses)
        self.handles.append(Handle(prepared, rows))
        return self.handles[-1]

    def ended(self, handle: Handle) -> bool:
        assert not handle.released
        if handle.state == "failed":
            raise TransferFailed("the peer is gone")
        return handle.state == "done"

    def release(self, handle: Handle) -> None:
        handle.released = True

    def close(self) -> None:
        assert all(handle.released for handle in self.handles)
        assert not self.prepared
        self.is_closed = True


@dataclass
class Mark:
    is_past: bool = False

    def ended(self) -> bool:
        return self.is_past


class Rig:
    def __init__(self) -> None:
        self.backend = Backend()
        self.told: list[End] = []
        self.copies = Copies(self.backend.open, self.told.append)
        self.copies.connect(ONE, "one", b"one")
        self.copies.connect(OTHER, "other", b"other")
        self._last = 0

    def copy(self, operation: Operation = "WRITE", peer: PeerId = ONE) -> LayerCopy:
        place = Place(0, 100, "cpu")
        pairs = Pairs((Span(0, 10, 5), Span(20, 30, 5)), LAYERS, place, place)
        return LayerCopy(peer, operation, pairs, pairs.nbytes)

    def start(self, copy: LayerCopy, layer: int = 0, mark: Mark | None = None) -> TransferId:
        self._last += 1
        transfer = TransferId(self._last)
        self.copies.start(Start(transfer, copy, layer, mark))
        self.copies.step()
        return transfer

    @property
    def writing(self) -> FakeAgent:
        return self.backend.agents[0]

    def failed(self) -> list[TransferId]:
        return [end.transfer for end in self.told if end.error]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def finish(handles: Iterable[Handle], state: str = "done") -> None:
    for handle in handles:
        handle.state = state


def test_an_end_is_told_once_and_its_handle_is_released_then_and_not_before(rig: Rig) -> None:
    transfer = rig.start(rig.copy(), layer=2)
    (handle,) = rig.writing.handles
    assert handle.rows == range(4, 6)
    assert not rig.copies.step()
    assert (rig.told, handle.released) == ([], False)
    finish([handle])
    assert rig.copies.step()
    assert (rig.told, handle.released) == ([End(transfer, 10)], True)
    assert not rig.copies.busy()


@pytest.mark.parametrize("when", ["posted", "under way"])
def test_a_failed_copy_says_the_layer_and_the_reason(rig: Rig, when: str) -> None:
    rig.backend.refuses = "the peer is gone" if when == "posted" else ""
    transfer = rig.start(rig.copy("READ"), layer=3)
    finish((handle for agent in rig.backend.agents for handle in agent.handles), "failed")
    rig.copies.step()
    assert rig.told == [End(transfer, 0, "layer 3 was not read: the peer is gone")]


def test_nothing_is_posted_before_the_work_that_stores_it_is_done(rig: Rig) -> None:
    marks = [Mark(), Mark()]
    copy = rig.copy()
    for layer, mark in enumerate(marks):
        rig.start(copy, layer, mark)
    assert rig.writing.handles == []
    assert rig.copies.busy()
    marks[0].is_past = True
    rig.copies.step()
    assert [handle.rows for handle in rig.writing.handles] == [range(2)]


def test_tables_serve_all_layers_and_go_when_nobody_needs_them(rig: Rig) -> None:
    copy = rig.copy()
    for layer in range(LAYERS):
        rig.start(copy, layer)
    assert rig.writing.prepared == 1
    rig.copies.disown(copy)
    assert rig.writing.prepared == 1
    finish(rig.writing.handles)
    rig.copies.step()
    assert rig.writing.prepared == 0


def test_leaving_fails_what_waits_and_lets_what_is_open_end(rig: Rig) -> None:
    copy = rig.copy()
    opened, waiting = rig.start(copy), rig.start(copy, 1, Mark())
    left = rig.copies.leave(ONE)
    assert (rig.failed(), left.done()) == ([waiting], False)
    late = rig.start(copy, 2)
    assert rig.failed() == [waiting, late]
    finish(rig.writing.handles)
    rig.copies.step()
    assert left.done()
    assert End(opened, 10) in rig.told
    assert rig.writing.joined == {"other"}
    assert rig.writing.prepared == 0


def test_a_write_given_up_is_told_once_and_bars_its_peer_until_it_has_ended(rig: Rig) -> None:
    transfer = rig.start(rig.copy())
    rig.copies.leave(ONE)
    rig.copies.give_up(ONE)
    (handle,) = rig.writing.handles
    assert (rig.failed(), handle.released) == ([transfer], False)
    with pytest.raises(TransferFailed, match="not ended yet"):
        rig.copies.connect(PeerId(3), "one", b"one")
    finish([handle])
    rig.copies.step()
    rig.copies.connect(PeerId(3), "one", b"one")
    assert (len(rig.told), handle.released) == (1, True)


def test_a_read_given_up_ends_its_agent_and_no_write(rig: Rig) -> None:
    stalled, other = rig.start(rig.copy("READ")), rig.start(rig.copy("READ", OTHER))
    write = rig.start(rig.copy("WRITE", OTHER))
    reading = rig.backend.agents[1]
    left = rig.copies.leave(ONE)
    rig.copies.give_up(ONE)
    assert (reading.is_closed, rig.writing.is_closed, left.done()) == (True, False, True)
    assert sorted(rig.failed()) == [stalled, other]
    finish(rig.writing.handles)
    rig.copies.step()
    assert End(write, 10) in rig.told


def test_reads_go_on_with_a_new_agent_after_one_was_given_up(rig: Rig) -> None:
    kept = rig.copy("READ", OTHER)
    rig.start(kept)
    rig.start(rig.copy("READ"))
    rig.copies.leave(ONE)
    rig.copies.give_up(ONE)
    again = rig.start(kept, 1)
    assert rig.backend.agents[2].joined == {"other"}
    finish(rig.backend.agents[2].handles)
    rig.copies.step()
    assert rig.told[-1] == End(again, 10)


def test_a_worker_that_can_make_no_agent_for_reads_fails_them_and_writes_on(rig: Rig) -> None:
    rig.copies.leave(ONE)
    rig.start(rig.copy("READ", OTHER))
    rig.copies.leave(OTHER)
    rig.copies.give_up(OTHER)
    rig.backend.is_full = True
    with pytest.raises(TransferFailed, match=r"no agent for reads .* too many agents"):
        rig.copies.connect(PeerId(3), "three", b"three")
    assert rig.writing.joined == set()


def test_a_read_that_no_new_agent_can_be_made_for_fails(rig: Rig) -> None:
    kept, write = rig.copy("READ", OTHER), rig.copy("WRITE", OTHER)
    rig.start(rig.copy("READ"))
    rig.copies.leave(ONE)
    rig.copies.give_up(ONE)
    rig.backend.is_full = True
    read, written = rig.start(kept), rig.start(write)
    finish(rig.writing.handles)
    rig.copies.step()
    assert rig.failed()[-1] == read
    assert rig.told[-1] == End(written, 10)


def test_a_peer_that_reads_cannot_reach_is_forgotten_for_writes_too(rig: Rig) -> None:
    rig.backend.agents[1].cannot_join = "three"
    with pytest.raises(TransferFailed, match="does not answer"):
        rig.copies.connect(PeerId(3), "three", b"three")
    assert [agent.joined for agent in rig.backend.agents] == [{"one", "other"}] * 2


def test_a_peer_that_was_left_is_forgotten_by_both_agents(rig: Rig) -> None:
    assert rig.copies.leave(ONE).done()
    assert [agent.joined for agent in rig.backend.agents] == [{"other"}] * 2


def test_a_pool_connected_twice_is_forgotten_with_the_second(rig: Rig) -> None:
    rig.copies.connect(PeerId(3), "one", b"one")
    assert rig.copies.leave(ONE).done()
    assert "one" in rig.writing.joined
    assert rig.copies.leave(PeerId(3)).done()
    assert "one" not in rig.writing.joined


def test_a_peer_whose_last_copy_ended_just_before_it_was_given_up_is_gone_all_the_same(
    rig: Rig,
) -> None:
    transfer = rig.start(rig.copy())
    left = rig.copies.leave(ONE)
    finish(rig.writing.handles)
    rig.copies.step()
    rig.copies.give_up(ONE)
    assert (left.done(), rig.told) == (True, [End(transfer, 10)])


def test_an_unknown_peer_is_left_at_once(rig: Rig) -> None:
    assert rig.copies.leave(PeerId(9)).done()


def test_metadata_of_another_agent_than_named_is_refused(rig: Rig) -> None:
    with pytest.raises(TransferFailed, match="says that it is three"):
        rig.copies.connect(PeerId(3), "three", b"four")
    assert rig.writing.joined == {"one", "other"}


@pytest.mark.parametrize(("name", "metadata"), [("one", b"another life"), ("three", b"one")])
def test_a_description_that_is_half_known_is_refused_and_what_is_known_is_kept(
    rig: Rig, name: str, metadata: bytes
) -> None:
    with pytest.raises(TransferFailed, match=f"says that it is {name}"):
        rig.copies.connect(PeerId(3), name, metadata)
    assert rig.writing.joined == {"one", "other"}


def test_closing_releases_everything_that_is_still_open(rig: Rig) -> None:
    for operation in ("WRITE", "READ"):
        rig.start(rig.copy(operation))
    rig.copies.close()
    assert all(agent.is_closed for agent in rig.backend.agents)


def test_a_thread_that_broke_is_a_bug_for_all_who_wait_for_it() -> None:
    def breaks(copies: Copies) -> None:
        raise ZeroDivisionError

    driver = Driver("any", Backend().open, lambda: None)
    driver.submit(breaks)
    with pytest.raises(BugError, match="has ended"):
        driver.ask(lambda copies: copies.metadata())
    with pytest.raises(BugError, match="broke"):
        driver.ends()


def test_what_an_agent_raises_at_its_making_is_raised_where_it_was_asked_for() -> None:
    def refuses() -> FakeAgent:
        raise TransferFailed("no")

    with pytest.raises(TransferFailed, match="no"):
        Driver("any", refuses, lambda: None)


def test_a_row_is_a_span_of_a_layer_in_both_pools() -> None:
    pairs = Pairs(
        (Span(0, 30, 5), Span(20, 0, 7)), 2, Place(1000, 100, "cpu"), Place(50, 60, "cpu")
    )
    rows = [[pairs.at(row) for row in pairs.of(layer)] for layer in range(2)]
    assert rows == [[(1000, 80, 5), (1020, 50, 7)], [(1100, 140, 5), (1120, 110, 7)]]
