"""Whether a worker may be sent another request now. What a prompt needs in blocks is the policy's
question (``WorkerView.free_tokens``); this is about seats and queues."""

from typing import Final

from splitserve.router.admission.views import Standing

AHEAD_S: Final = 0.5
"""Prompt work that may wait at a worker. More would only make it wait out of reach: past the order
of the line, in blocks that are granted already. Less could let the worker run dry."""

AHEAD_TOKENS: Final = 2048
"""The same while the worker's speed is not known."""

UNANSWERED: Final = 8
"""How many requests for room may be open at a decode worker whose seats are not known: a burst
finds them out at the cost of few refusals."""


def accepts(standing: Standing, seats: int | None, tokens_per_s: float | None) -> bool:
    """``seats``: how many requests run there, ``tokens_per_s``: its speed at prompts; None when
    that is not known. A worker that holds nothing always accepts."""
    view = standing.view
    if seats is not None and standing.occupied >= max(1, seats):
        return False
    if view.role == "decode" and view.linked:
        return seats is not None or standing.unsettled < UNANSWERED
    if view.role != "prefill" and view.waiting and standing.unsettled:
        return False  # what was sent last has no seat yet
    ahead = AHEAD_TOKENS if tokens_per_s is None else tokens_per_s * AHEAD_S
    return view.waiting_tokens == 0 or view.waiting_tokens < ahead
