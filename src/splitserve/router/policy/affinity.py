"""When to follow the KV that is there already. Pure.

A worker that holds the start of a prompt saves computing it. That is worth being sent where more is
going on, but not more than it saves: nobody queues behind a long line to find a cache.

Where nobody is known to hold more than another, the workers of the session's last turn are taken as
if they held the prompt, by the same rule.
"""

from collections.abc import Sequence
from typing import Final

from splitserve.ids import WorkerId
from splitserve.router.policy.base import RequestView, WorkerView
from splitserve.router.policy.turns import Cost, Turns

REQUEST_TOKENS: Final = 256
"""One more open request at a worker weighs as much as so many prompt tokens to compute."""

MOST_EXTRA: Final = 8
"""How many open requests more than the least loaded worker a holder may have, whatever it holds:
a start that all prompts share must not draw all of them to one worker."""


def gain(saved_tokens: int, extra_requests: int, extra_tokens: int) -> int:
    """What a worker brings that is chosen instead of the least loaded one, in prompt tokens.

    It holds ``saved_tokens`` more of the prompt; so many open requests and waiting prompt tokens
    more are there. It is worth it only if this is more than 0.
    """
    if saved_tokens <= 0 or extra_requests > MOST_EXTRA:
        return 0
    load = max(0, extra_requests) * REQUEST_TOKENS + max(0, extra_tokens)
    return saved_tokens - load


def to_answer(
    request: RequestView, workers: Sequence[WorkerView], turns: Turns, requests: Cost
) -> WorkerView:
    """Who runs the answer; ``requests`` counts a worker's load. ``workers`` not empty."""
    least = turns.cheapest(workers, requests)
    held = request.held

    def gained(worker: WorkerView) -> int:
        return gain(
            held.at(worker.worker) - held.at(least.worker),
            requests(worker) - requests(least),
            _ahead(worker) - _ahead(least),
        )

    def hoped(worker: WorkerView) -> int:
        if held.at(worker.worker) < held.at(least.worker):
            return 0
        return gain(
            request.prompt_tokens,
            requests(worker) - requests(least),
            _ahead(worker) - _ahead(least),
        )

    best = _best(workers, turns, gained)
    return best or _of_last_turn(request.last.decode, workers, hoped) or least


def to_prefill(
    request: RequestView,
    decode: WorkerId,
    workers: Sequence[WorkerView],
    turns: Turns,
    tokens: Cost,
) -> WorkerView:
    """Who computes the prompt for ``decode``; ``tokens`` counts what waits at a worker. ``workers``
    not empty."""
    least = turns.cheapest(workers, tokens)
    held = request.held

    def gained(worker: WorkerView) -> int:
        saved = held.for_prefill(worker.worker, decode) - held.for_prefill(least.worker, decode)
        return gain(saved, 0, tokens(worker) - tokens(least))

    def hoped(worker: WorkerView) -> int:
        if held.for_prefill(worker.worker, decode) < held.for_prefill(least.worker, decode):
            return 0
        return gain(request.prompt_tokens, 0, tokens(worker) - tokens(least))

    best = _best(workers, turns, gained)
    return best or _of_last_turn(request.last.prefill, workers, hoped) or least


def _best(workers: Sequence[WorkerView], turns: Turns, gained: Cost) -> WorkerView | None:
    best = turns.cheapest(workers, lambda worker: -gained(worker))
    return best if gained(best) > 0 else None


def _of_last_turn(
    last: WorkerId | None, workers: Sequence[WorkerView], hoped: Cost
) -> WorkerView | None:
    """It, if it is among ``workers`` and not too busy."""
    return next((one for one in workers if one.worker == last and hoped(one) > 0), None)


def _ahead(worker: WorkerView) -> int:
    """Prompt tokens that would be computed before one that is computed here."""
    return 0 if worker.role == "decode" and worker.linked else worker.waiting_tokens
