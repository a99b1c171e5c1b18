"""Placement by topology: which workers come into question, whatever the choice among them is by.

Answers run on decode workers that a prefill worker is linked to, or on colocated workers; then on
decode workers without a link; only where there is neither, on prefill workers, since every worker
can do everything. Among those the cheapest is chosen, or one that holds more of the prompt already
(see ``affinity``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from splitserve.ids import WorkerId
from splitserve.router.policy import affinity
from splitserve.router.policy.base import Estimate, Placement, RequestView, WorkerView
from splitserve.router.policy.turns import Cost, Turns


@dataclass(frozen=True, slots=True)
class Choice:
    """The workers a request would go to; ``prefill`` is None where one has to do all of it. Cached
    tokens as in Placement."""

    decode: WorkerView
    prefill: WorkerView | None
    reason: str
    decode_cached_tokens: int = 0
    prefill_cached_tokens: int = 0


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
    """As ``place``, but nobody's turn is over yet. ``answer_cost`` counts requests, ``prompt_cost``
    prompt tokens that wait."""
    prefills = {w.worker: w for w in workers if w.role == "prefill"}
    answering = [w for w in workers if w.role != "prefill"]
    roomy = [w for w in answering or workers if _has_room(w, request, prefills)]
    first_choice = [w for w in roomy if w.role == "colocated" or _linked(w, prefills)]
    if not roomy:
        return None
    chosen = affinity.to_answer(request, first_choice or roomy, turns, answer_cost)
    at_decode = request.held.at(chosen.worker)
    linked = _linked(chosen, prefills)
    if not linked:
        return Choice(chosen, None, _why_whole(chosen) + _of_prefix(at_decode), at_decode)
    linked = [w for w in linked if w.accepts]
    prefill = affinity.to_prefill(request, chosen.worker, linked, turns, prompt_cost)
    at_prefill = request.held.for_prefill(prefill.worker, chosen.worker)
    return Choice(
        chosen,
        prefill,
        f"decode costs {answer_cost(chosen)} of {len(roomy)} with room, "
        f"prefill costs {prompt_cost(prefill)} of {len(linked)} linked"
        + _of_prefix(at_decode, at_prefill),
        at_decode,
        at_prefill,
    )


def take(choice: Choice, turns: Turns, estimate: Estimate | None = None) -> Placement:
    """Ends the turns of the workers chosen."""
    turns.take(choice.decode.worker)
    if choice.prefill is not None:
        turns.take(choice.prefill.worker)
    prefill = None if choice.prefill is None else choice.prefill.worker
    return Placement(
        choice.decode.worker,
        prefill,
        choice.reason,
        estimate,
        choice.decode_cached_tokens,
        choice.prefill_cached_tokens,
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


def _of_prefix(decode: int, prefill: int | None = None) -> str:
    """Tokens of the prompt that were expected to be there already, for people."""
    if not decode and not prefill:
        return ""
    if prefill is None:
        return f"; prefix of {decode} tokens"
    return f"; prefix of {decode} tokens at decode, {prefill} at prefill"
