"""Over every connector: a copy that is met half-way by a death, a stall or wrong bytes, and one
that lands after its request is gone. The right answer or one honest error; no block is lost, and
none is written into that belongs to another; and the next prompt goes by the same connector again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cluster import wait_until
from faults.acts import check_answers, check_ledger, go_on, inject
from faults.cells import Fault
from faults.rig import DEADLINE_S, FLAGS, LARGE, PROMPT, SLOW, Asked, Rig, is_, rigged

from connectors.usable import over
from splitserve.protocol.handoff import Prefill, PrefillDone
from splitserve.router.handoff.states import State

COPYING = State.TRANSFERRING


@dataclass
class LinkedRig(Rig):
    connector: str = ""

    def held(self, name: str) -> int:
        return self.kv_blocks().get(name, {}).get("held", 0)

    def environment(self, name: str) -> dict[str, str]:
        # What NIXL uses between hosts. On one host it would copy without the other process.
        return {**super().environment(name), "UCX_TLS": "tcp"}

    def is_missed(self, name: str) -> bool:
        """The gateway has heard nothing of it for too long."""
        return self.total("splitserve_worker_connected", worker=name) == 0

    def check_link(self) -> None:
        """All is as in the beginning, and another prompt goes over the link."""
        self.heal()
        before = self.total("splitserve_handoff_bytes_total")
        asked = self.ask(PROMPT)
        asked.stream.read_all()
        assert asked.right, asked.told()
        assert self.total("splitserve_handoff_bytes_total") > before
        link = self.total("splitserve_link", connector=self.connector)
        assert link == self.total("splitserve_link") == 1


@pytest.fixture(scope="module")
def rig(connector: str, model: str) -> Iterator[LinkedRig]:
    roles = [("prefill", "p0"), ("decode", "d0")]
    flags = (*FLAGS, *SLOW, "--connector", connector)
    with rigged(model, roles, flags, LinkedRig) as rig:
        rig.connector = connector
        yield rig


def half_written(rig: Rig) -> Asked:
    """A request of which decode has the KV of one layer."""
    rig.fault("p0", "half")
    asked = rig.ask(LARGE)
    asked.stream.read(1)
    assert not rig.relays["p0"].saw(is_(PrefillDone, asked.name))
    return asked


def half_read(rig: Rig) -> Asked:
    """A second turn of which prefill has read one layer of what decode alone has."""
    first = rig.ask(PROMPT, 60)
    first.stream.read_all()
    assert first.right, first.told()
    rig.fault("p0", "half")
    asked = rig.ask_this([*first.ids, *first.answer, *rig.prompt(rig.begun, 20)])
    rig.relays["p0"].wait(is_(Prefill, asked.name))
    wait_until(lambda: rig.held("p0") > 0, 5, lambda: f"nothing is read: {rig.kv_blocks()}")
    return asked


HALVES = {"write": half_written, "read": half_read}

POSTING = [over("nixl"), over("mooncake")]
"""Writes over shm that are met half-way are cells of the matrix in ``flow/faults``; those over tcp
are broken on the wire, in ``test_tcp_wire``."""


def meet(rig: LinkedRig, half: str, fault: Fault) -> None:
    """A copy, half-way, and then the fault."""
    rig.heal()
    asked = HALVES[half](rig)
    inject(rig, fault, asked)
    go_on(rig, fault, State.TRANSFERRING)
    asked.stream.read_all(DEADLINE_S * 2)
    check_answers(fault, [asked])
    check_ledger(rig, State.TRANSFERRING, fault)
    rig.check_link()


@pytest.mark.parametrize("connector", POSTING, indirect=True)
@pytest.mark.parametrize(
    "fault",
    [
        Fault.PREFILL_KILLED,
        Fault.DECODE_KILLED,
        Fault.TRANSFER_STALLS,
        Fault.TRANSFER_FAILS,
        Fault.TRANSFER_CORRUPT,
    ],
    ids=lambda fault: fault.value,
)
def test_a_write_that_is_met_half_way(rig: LinkedRig, fault: Fault) -> None:
    meet(rig, "write", fault)


@pytest.mark.parametrize(
    "fault", [Fault.PREFILL_KILLED, Fault.DECODE_KILLED], ids=lambda fault: fault.value
)
def test_a_read_that_is_met_half_way(rig: LinkedRig, fault: Fault) -> None:
    meet(rig, "read", fault)


@pytest.mark.parametrize("connector", [over("tcp"), *POSTING], indirect=True)
def test_a_write_that_a_frozen_process_takes_when_it_thaws(rig: LinkedRig) -> None:
    meet(rig, "write", Fault.DECODE_FROZEN)


@pytest.mark.parametrize("connector", POSTING, indirect=True)
def test_a_write_to_a_frozen_process_that_is_then_killed(rig: LinkedRig) -> None:
    """It is under way when the other process dies, which has a part in it."""
    rig.heal()
    asked = half_written(rig)
    rig.workers["d0"].freeze()
    rig.fault("p0", "")
    wait_until(lambda: rig.is_missed("d0"), 5, lambda: "the frozen worker is not missed")
    rig.workers["d0"].kill()
    asked.stream.read_all(DEADLINE_S * 2)
    assert asked.right or asked.honest, asked.told()
    wait_until(rig.settled, 5, lambda: f"blocks are not given back: {rig.kv_blocks()}")
    rig.check_link()


@pytest.mark.parametrize("half", sorted(HALVES))
def test_what_lands_after_its_request_is_gone_harms_nobody(rig: LinkedRig, half: str) -> None:
    rig.heal()
    gone = HALVES[half](rig)
    gone.stream.leave()
    gone.stream.read_all()
    waiting = {"write": rig.quarantined, "read": rig.held}[half]
    where = {"write": "d0", "read": "p0"}[half]
    wait_until(lambda: waiting(where) > 0, 5, lambda: f"nothing waits: {rig.kv_blocks()}")
    rig.fault("p0", "keep")
    before = rig.ask(PROMPT)
    before.stream.read_all()
    assert before.right, before.told()
    assert waiting(where) > 0
    during = rig.ask(PROMPT, 100)
    during.stream.read(3)
    rig.fault("p0", "")
    during.stream.read_all()
    assert during.right, during.told()
    wait_until(rig.settled, 5, lambda: f"blocks are not given back: {rig.kv_blocks()}")
    # What others were given meanwhile is checked once more, from its first token on.
    for other in (before, during):
        again = rig.ask_this([*other.ids, *other.answer])
        again.stream.read_all()
        assert again.right, again.told()
    assert not any(map(rig.ended, rig.roles)), "a worker found KV that is not what it should be"
    rig.check_link()
