"""What a cell of the matrix does: into the state, then the fault, then what must hold."""

from collections.abc import Callable
from typing import Final

from cluster import wait_until

from faults.cells import TRANSFER, Fault
from faults.rig import DEADLINE_S, LARGE, PROMPT, Asked, Rig, is_, token_of
from splitserve.protocol.control import StepTokens, Submit
from splitserve.protocol.handoff import Grant, Prefill, PrefillDone, Reserve
from splitserve.router.handoff.states import State

GRANTED: Final = (State.GRANTING, State.PREFILLING, State.TRANSFERRING)
"""A grant is open that the prefill worker may write into."""


def run_cell(rig: Rig, state: State, fault: Fault) -> None:
    rig.heal()
    before = rig.begun, rig.finals()
    requests = INTO[state](rig)
    inject(rig, fault, requests[-1])
    go_on(rig, fault, state)
    for asked in requests:
        asked.stream.read_all(DEADLINE_S * 2)
    check_answers(fault, requests)
    if fault is Fault.GATEWAY_KILLED:
        rig.heal()
        return
    check_ledger(rig, state, fault)
    begun, finals = rig.begun - before[0], before[1]

    def ended() -> float:
        return rig.finals() - finals

    # A gateway hears by itself that a client is gone, also where no worker has anything to free.
    wait_until(lambda: ended() >= begun, 5, lambda: f"{ended()} of {begun} have ended")
    assert ended() == begun


# Into each state. What is returned are the requests, the one in the state last.


def waiting(rig: Rig) -> list[Asked]:
    """Another request's grant takes the room."""
    rig.relays["d0"].hold(is_(Grant))
    other = rig.ask(LARGE)
    rig.relays["d0"].wait(is_(Grant, other.name))
    asked = rig.ask(LARGE)
    rig.arrived(asked)
    assert not rig.relays["d0"].saw(is_(Reserve, asked.name))
    return [other, asked]


def granting(rig: Rig) -> list[Asked]:
    rig.relays["d0"].hold(is_(Grant))
    asked = rig.ask(PROMPT)
    rig.relays["d0"].wait(is_(Grant, asked.name))
    return [asked]


def prefilling(rig: Rig) -> list[Asked]:
    rig.relays["p0"].hold(is_(StepTokens))
    asked = rig.ask(PROMPT)
    rig.relays["p0"].wait(is_(Prefill, asked.name))
    return [asked]


def transferring(rig: Rig) -> list[Asked]:
    rig.fault("p0", "stall")
    asked = rig.ask(PROMPT)
    asked.stream.read(1)
    assert not rig.relays["p0"].saw(is_(PrefillDone, asked.name))
    return [asked]


def decoding(rig: Rig) -> list[Asked]:
    asked = rig.ask(PROMPT, 100)
    rig.relays["d0"].hold(token_of(asked.name, 5))
    asked.stream.read(3)
    rig.relays["p0"].wait(is_(PrefillDone, asked.name))
    return [asked]


def local(rig: Rig) -> list[Asked]:
    for relay in rig.relays.values():
        relay.hold(is_(StepTokens))
    asked = rig.ask(PROMPT)
    wait_until(lambda: rig.worker_of(asked) != "", 10, lambda: "no worker was asked")
    return [asked]


def recomputing(rig: Rig) -> list[Asked]:
    rig.fault("p0", "fail")
    rig.relays["d0"].hold(is_(StepTokens))
    asked = rig.ask(PROMPT)
    rig.relays["d0"].wait(is_(Submit, asked.name))
    rig.fault("p0", "")
    return [asked]


INTO: Final[dict[State, Callable[[Rig], list[Asked]]]] = {
    State.WAITING: waiting,
    State.GRANTING: granting,
    State.PREFILLING: prefilling,
    State.TRANSFERRING: transferring,
    State.DECODING: decoding,
    State.LOCAL: local,
    State.RECOMPUTING: recomputing,
}


def inject(rig: Rig, fault: Fault, asked: Asked) -> None:
    prefill, decode = "p0", "d0" if "d0" in rig.roles else rig.worker_of(asked)
    match fault:
        case Fault.PREFILL_KILLED:
            rig.workers[prefill].kill()
        case Fault.DECODE_KILLED:
            rig.workers[decode].kill()
        case Fault.GATEWAY_KILLED:
            rig.gate.kill()
        case Fault.CLIENT_GONE:
            asked.stream.leave()
        case Fault.TRANSFER_STALLS:
            rig.fault(prefill, "stall")
        case Fault.TRANSFER_FAILS:
            rig.fault(prefill, "fail")
        case Fault.TRANSFER_CORRUPT:
            rig.fault(prefill, "corrupt")
        case Fault.DUPLICATE_KV_READY:
            rig.fault(prefill, "duplicate")
        case Fault.PREFILL_FROZEN:
            rig.workers[prefill].freeze()
        case Fault.DECODE_FROZEN:
            rig.workers[decode].freeze()
        case Fault.HALF_OPEN_TO_PREFILL:
            rig.relays[prefill].silence(rig.gate.pid)
        case Fault.HALF_OPEN_TO_DECODE:
            rig.relays[decode].silence(rig.gate.pid)
        case Fault.HALF_OPEN_LINK:
            rig.relays[decode].silence(rig.workers[prefill].pid)


def go_on(rig: Rig, fault: Fault, state: State) -> None:
    """What kept the request in its state is taken away; the fault stays."""
    for relay in rig.relays.values():
        relay.release()
    if state is State.TRANSFERRING and fault not in (*TRANSFER, Fault.DUPLICATE_KV_READY):
        rig.fault("p0", "")


def check_answers(fault: Fault, requests: list[Asked]) -> None:
    *others, asked = requests
    if fault is Fault.GATEWAY_KILLED:
        assert all(a.cut for a in requests), [a.told() for a in requests]
        return
    for other in others:
        assert other.right or other.honest, other.told()
    if fault is Fault.CLIENT_GONE:
        assert asked.cut, asked.told()
    else:
        assert asked.right or asked.honest, asked.told()


def check_ledger(rig: Rig, state: State, fault: Fault) -> None:
    """Free or cached within the promised time, but for what a living writer may still write."""
    if fault is Fault.PREFILL_FROZEN and state in GRANTED:
        wait_until(lambda: rig.quarantined("d0") > 0, 5, lambda: f"none in {rig.kv_blocks()}")
    if fault in (Fault.PREFILL_FROZEN, Fault.DECODE_FROZEN):
        for process in rig.workers.values():
            process.thaw()
    if fault is Fault.TRANSFER_STALLS:
        rig.fault("p0", "")
    wait_until(rig.settled, 5, lambda: f"blocks are not given back: {rig.kv_blocks()}")
