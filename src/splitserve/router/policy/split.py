"""Placement by topology: which workers come into question, whatever the choice among them is by.

Answers run on decode workers that a prefill worker is linked to, or on colocated workers; then on
decode workers without a link; only where there is neither, on prefill workers, since every worker
can do everything.
"""

from collections.abc import Mapping, Sequence

from splitserve.ids import WorkerId
from splitserve.router.policy.base import Placement, RequestView, WorkerView
from splitserve.router.policy.turns import Cost, Turns


def place(
    request: RequestView,
    workers: Sequence[WorkerView],
    turns: Turns,
    *,
    answer_cost: Cost,
    prompt_cost: Cost,
) -> Placement | None:
    """None when all workers that come into question are full."""
    prefills = {w.worker: w for w in workers if w.role == "prefill"}
    answering = [w for w in workers if w.role != "prefill"]
    roomy = [w for w in answering or workers if _has_room(w, request, prefills)]
    first_choice = [w for w in roomy if w.role == "colocated" or _linked(w, prefills)]
    if not roomy:
        return None
    chosen = turns.cheapest(first_choice or roomy, answer_cost)
    linked = _linked(chosen, prefills)
    if not linked:
        return Placement(chosen.worker, None, _why_whole(chosen))
    linked = [w for w in linked if w.accepts]
    prefill = turns.cheapest(linked, prompt_cost)
    return Placement(
        chosen.worker,
        prefill.worker,
        f"decode costs {answer_cost(chosen)} of {len(roomy)} with room, "
        f"prefill costs {prompt_cost(prefill)} of {len(linked)} linked",
    )


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
