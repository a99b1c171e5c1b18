"""A copy between two workers that something meets half-way, and what must hold after it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cluster import wait_until
from faults.acts import check_answers, check_ledger, go_on, inject
from faults.cells import Fault
from faults.rig import ANSWER, DEADLINE_S, LARGE, PROMPT, Asked, Rig, is_

from splitserve.protocol.handoff import Prefill, PrefillDone
from splitserve.router.handoff.states import State


@dataclass
class LinkedRig(Rig):
    connector: str = ""

    def held(self, name: str) -> int:
        return self.kv_blocks().get(name, {}).get("held", 0)

    def ask_after(self, asked: Asked, length: int, max_tokens: int = ANSWER) -> Asked:
        """Another turn: the request, its answer and ``length`` tokens of the client's."""
        more = self.prompt(self.begun, length)
        return self.ask_this([*asked.ids, *asked.answer, *more], max_tokens)

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


def half_written(rig: LinkedRig) -> Asked:
    """A request of which decode has the KV of one layer."""
    rig.fault("p0", "half")
    asked = rig.ask(LARGE)
    asked.stream.read(1)
    assert not rig.relays["p0"].saw(is_(PrefillDone, asked.name)), asked.told()
    return asked


def half_read(rig: LinkedRig) -> Asked:
    """A second turn of which prefill has read one layer of what decode alone has."""
    first = rig.ask(PROMPT, 60)
    first.stream.read_all()
    assert first.right, first.told()
    rig.fault("p0", "half")
    asked = rig.ask_after(first, 20)
    rig.relays["p0"].wait(is_(Prefill, asked.name))
    wait_until(lambda: rig.held("p0") > 0, 5, lambda: f"nothing is read: {rig.kv_blocks()}")
    return asked


HALVES: Final[dict[str, Callable[[LinkedRig], Asked]]] = {"write": half_written, "read": half_read}


def meet(rig: LinkedRig, half: str, fault: Fault) -> None:
    """A copy, half-way, and then the fault."""
    rig.heal()
    go_through(rig, HALVES[half](rig), fault)


def go_through(rig: LinkedRig, asked: Asked, fault: Fault) -> None:
    """The fault, and what must hold after it."""
    inject(rig, fault, asked)
    go_on(rig, fault, State.TRANSFERRING)
    asked.stream.read_all(DEADLINE_S * 2)
    check_answers(fault, [asked])
    check_ledger(rig, State.TRANSFERRING, fault)
    rig.check_link()


def land_late(rig: LinkedRig, half: str) -> None:
    """A copy that ends after its request is gone, while others are answered."""
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
    check_unharmed(rig, [before, during])


def check_unharmed(rig: LinkedRig, others: list[Asked]) -> None:
    """What others were given meanwhile is used once more, from its first token on."""
    wait_until(rig.settled, 5, lambda: f"blocks are not given back: {rig.kv_blocks()}")
    for other in others:
        again = rig.ask_after(other, 1)
        again.stream.read_all()
        assert again.right, again.told()
    assert not any(map(rig.ended, rig.roles)), "a worker broke"
    rig.check_link()
