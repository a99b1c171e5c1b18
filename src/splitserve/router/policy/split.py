"""Placement by topology: which workers come into question, whatever the choice among them is by.

Answers run on decode workers that a prefill worker is linked to, or on colocated workers; then on
decode workers without a link; only where there is neither, on prefill workers, since every worker
can do everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from splitserve.ids import WorkerId
from splitserve.router.policy.base import Estimate, Placement, RequestView, WorkerView
from splitserve.router.policy.turns import Cost, Turns


@dataclass(frozen=True, slots=True)
class Choice:
    """The workers a request would go to; ``prefill`` is None where one has to do all of it."""

    decode: WorkerView
    prefill: WorkerView | None
    reason: str


def place(
    request: RequestView,
    workers: Sequence[WorkerView],
    turns: Turns,
    *,
    answer_cost: Cost,
    prompt_cost: Cost,
) -> Placement | None:
    """None when all workers that come into question are full."""
    choice = choose(request, workers, turns, answer_cost=answer_cost, prompt_cost=prompt_cost)
    return None if choice is None else take(choice, turns)


def choose(
    request: RequestView,
    workers: Sequence[WorkerView],
    turns: Turns,
    *,
    answer_cost: Cost,
    prompt_cost: Cost,
) -> Choice | None:
    """As ``place``, but nobody's turn is over yet."""
    prefills = {w.worker: w for w in workers if w.role == "prefill"}
    answering = [w for w in workers if w.role != "prefill"]
    roomy = [w for w in answering or workers if _has_room(w, request, prefills)]
    first_choice = [w for w in roomy if w.role == "colocated" or _linked(w, prefills)]
    if not roomy:
        return None
    chosen = turns.cheapest(first_choice or roomy, answer_cost)
    linked = _linked(chosen, prefills)
    if not linked:
        return Choice(chosen, None, _why_whole(chosen))
    linked = [w for w in linked if w.accepts]
    prefill = turns.cheapest(linked, prompt_cost)
    return Choice(
        chosen,
        prefill,
        f"decode costs {answer_cost(chosen)} of {len(roomy)} with room, "
        f"prefill costs {prompt_cost(prefill)} of {len(linked)} linked",
    )


def take(choice: Choice, turns: Turns, estimate: Estimate | None = None) -> Placement:
    """Ends the turns of the workers chosen."""
    turns.take(choice.decode.worker)
    if choice.prefill is not None:
        turns.take(choice.prefill.worker)
    prefill = None if choice.prefill is None else choice.prefill.worker
    return Placement(choice.decode.worker, prefill, choice.reason, estimate)


def _has_room(
    worker: WorkerView, request: RequestView, prefills: Mapping[WorkerId, WorkerView]
) -> bool:
    """Where the prompt is to be computed by another worker, one of those has to accept it too."""
    if not worker.accepts or worker.free_tokens <= request.prompt_tokens:
        return False
    linked = _linked(worker, prefills)
    return not linked or any(w.accepts for w in linked)


def _linked(worker: WorkerView, prefills: Mapping[WorkerId, WorkerView]) -> list[WorkerView]:
    if worker.role != "decode":
        return []
    return [prefills[name] for name in worker.linked if name in prefills]


def _why_whole(worker: WorkerView) -> str:
    if worker.role == "decode":
        return "no prefill worker is linked: decode computes the prompt too"
    if worker.role == "prefill":
        return "no decode worker is usable: prefill answers too"
    return "colocated"
