"""The handoff machine's table as text, made by running it: ``python tests/router/states_text.py``
prints what ARCHITECTURE.md has under "Handoff states"."""

from collections.abc import Iterator
from typing import Final

from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.handoff import GrantTarget
from splitserve.router.handoff.events import (
    Alternatives,
    Answered,
    Broken,
    ClientGone,
    Deadline,
    Ended,
    Event,
    Granted,
    PartFailed,
    Placed,
    Spoke,
)
from splitserve.router.handoff.kinds import Kind
from splitserve.router.handoff.machine import UnexpectedEvent, step
from splitserve.router.handoff.states import Progress, State
from splitserve.router.policy.base import Placement

P, P2, D, D2 = (WorkerId(name) for name in ("p", "p2", "d", "d2"))
SPLIT, WHOLE = Placement(D, P, ""), Placement(D, None, "")
TARGET = GrantTarget(HandoffId("r#0"), 1, D, "link", 0, (1,))

NEXT: Final = (Alternatives(Placement(D, P2, ""), D), Alternatives(whole=D2), Alternatives())
FAILURES: Final = ("lost", "no_blocks", "invalid", "draining")


def _failed(worker: WorkerId) -> list[Event]:
    return [PartFailed(worker, code, "", left) for code in FAILURES for left in NEXT]


EVENTS: Final[dict[Kind, list[Event]]] = {
    Kind.PLACED: [Placed(SPLIT), Placed(WHOLE)],
    Kind.GRANTED: [Granted(D, TARGET)],
    Kind.PREFILL_SPOKE: [Spoke(P)],
    Kind.DECODE_SPOKE: [Spoke(D)],
    Kind.PREFILL_ENDED: [Ended(P)],
    Kind.DECODE_ENDED: [Ended(D)],
    Kind.PREFILL_FAILED: _failed(P),
    Kind.DECODE_FAILED: _failed(D),
    Kind.ANSWERED: [Answered(D)],
    Kind.BROKEN: [Broken("")],
    Kind.CLIENT_GONE: [ClientGone()],
    Kind.DEADLINE: [Deadline()],
}


def lives(state: State) -> Iterator[Progress]:
    """Every way a request can be in ``state``, as far as it matters to what comes next."""
    split = state not in (State.WAITING, State.LOCAL, State.RECOMPUTING)
    workings = {
        State.WAITING: [frozenset[WorkerId]()],
        State.GRANTING: [frozenset({D})],
        State.PREFILLING: [frozenset({D, P}), frozenset({P})],
        State.TRANSFERRING: [frozenset({D, P}), frozenset({D}), frozenset({P})],
        State.DECODING: [frozenset({D, P}), frozenset({D}), frozenset({P})],
    }
    for working in workings.get(state, [frozenset({D})]):
        for spoke in (False, True):
            yield Progress(
                max_attempts=3,
                since=0.0,
                state=state,
                attempt=-1 if state is State.WAITING else 0,
                placement=None if state is State.WAITING else SPLIT if split else WHOLE,
                working=working,
                decode_spoke=spoke,
                answering=state in (State.TRANSFERRING, State.DECODING),
            )


def leads_to(state: State, kind: Kind) -> set[State]:
    """Empty when the pair is refused."""
    found = set()
    for progress in lives(state):
        for event in EVENTS[kind]:
            try:
                found.add(step(progress, event, 1.0)[0].state)
            except UnexpectedEvent:
                continue
    return found


def states_text() -> str:
    """A Mermaid diagram: one arrow per pair of states, with all that leads along it."""
    lines = ["stateDiagram-v2", "    [*] --> WAITING"]
    for state in State:
        reasons: dict[State, list[str]] = {}
        for kind in Kind:
            for target in leads_to(state, kind):
                reasons.setdefault(target, []).append(kind.name.lower().replace("_", " "))
        for target in State:
            if target in reasons and not Progress(1, 0.0, state).final:
                lines.append(f"    {state.name} --> {target.name}: {', '.join(reasons[target])}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(states_text())
