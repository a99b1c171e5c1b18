"""At every state, whatever breaks: the right answer or one honest error, and no block lost."""

from collections.abc import Iterator

import pytest
from cluster import wait_until

from faults.acts import INTO, decoding, local, prefilling, recomputing, run_cell
from faults.cells import FINAL, IMPOSSIBLE, STATES, Cell, Fault, cells
from faults.rig import FLAGS, SLOW, Rig, is_, rigged
from splitserve.protocol.handoff import Prefill, Reserve
from splitserve.router.handoff.states import State

SPLIT = [("prefill", "p0"), ("decode", "d0")]
ALIKE = [("colocated", "c0"), ("colocated", "c1")]


@pytest.fixture(scope="module")
def split(model: str) -> Iterator[Rig]:
    with rigged(model, SPLIT, (*FLAGS, *SLOW)) as rig:
        yield rig


@pytest.fixture(scope="module")
def alike(model: str) -> Iterator[Rig]:
    with rigged(model, ALIKE, (*FLAGS, *SLOW)) as rig:
        yield rig


def cases(all_cells: Iterator[Cell]) -> Iterator[object]:
    for state, fault in all_cells:
        yield pytest.param(state, fault, id=f"{state.value}-{fault.value}")


@pytest.mark.parametrize(("state", "fault"), list(cases(cells())))
def test_cell(split: Rig, alike: Rig, state: State, fault: Fault) -> None:
    run_cell(alike if state is State.LOCAL else split, state, fault)


def test_a_frozen_writers_blocks_are_free_once_it_is_killed(split: Rig) -> None:
    split.heal()
    (asked,) = prefilling(split)
    split.workers["p0"].freeze()
    split.relays["p0"].release()
    asked.stream.read_all()
    assert asked.right, asked.told()
    wait_until(lambda: split.quarantined("d0") > 0, 5, lambda: f"none in {split.kv_blocks()}")
    split.workers["p0"].kill()
    wait_until(split.settled, 5, lambda: f"blocks are not given back: {split.kv_blocks()}")


def test_the_matrix_is_whole() -> None:
    """Every state and every fault is either run or said to be impossible, and why."""
    run = set(cells())
    assert run.isdisjoint(IMPOSSIBLE)
    assert run | set(IMPOSSIBLE) == {(state, fault) for state in STATES for fault in Fault}
    assert set(STATES) == set(State) - FINAL == set(INTO)
    assert all(IMPOSSIBLE.values())


def test_a_local_request_meets_no_handoff(alike: Rig) -> None:
    alike.heal()
    (asked,) = local(alike)
    for relay in alike.relays.values():
        relay.release()
    asked.stream.read_all()
    assert asked.right
    for relay in alike.relays.values():
        assert not relay.saw(is_(Reserve))
        assert not relay.saw(is_(Prefill))


def test_once_decoding_nothing_is_written_any_more(split: Rig) -> None:
    """Cells of DECODING and RECOMPUTING with a transfer at fault: the fault finds no transfer."""
    split.heal()
    (asked,) = decoding(split)
    split.fault("p0", "stall")
    split.relays["d0"].release()
    asked.stream.read_all()
    assert asked.right
    (asked,) = recomputing(split)
    split.fault("p0", "stall")
    split.relays["d0"].release()
    asked.stream.read_all()
    assert asked.right
    split.assert_settles()
