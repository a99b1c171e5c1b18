"""Admission: admit now, wait, or refuse with the reason. Pure: values and the time in.

A request joins the line. Whoever is first goes as soon as a worker accepts it. Whoever has to wait
is told at once when the first token could not come by its deadline, and again whenever that
becomes so: what is known changes with every answer. Before anything is known, everybody may wait.
"""

from dataclasses import replace
from typing import Final

from splitserve.router.admission.credits import accepts
from splitserve.router.admission.forecast import Forecast, Outlook
from splitserve.router.admission.line import Line
from splitserve.router.admission.rates import Rates
from splitserve.router.admission.seats import LearnedSeats
from splitserve.router.admission.views import Candidate, Fleet, Refusal, Standing
from splitserve.router.policy.base import WorkerView

HEADROOM: Final = 0.9
"""Share of its time to the deadline that a newcomer may be predicted to use. Those that wait may
use all of it: a forecast that moves a little must not turn away whom it has just let in."""

DOUBT: Final = 0.25
"""Share of its time by which the forecast for one that waits may be wrong. Places become free in
clumps, where answers began together; so it is doubted by the time of one answer, this at most."""

UNKNOWN_RETRY_S: Final = 1.0
"""When to come back while there is nothing to predict from."""


class Admission:
    """``max_queued``: how many may wait."""

    def __init__(self, max_queued: int) -> None:
        self._max_queued = max_queued
        self.line: Final = Line()
        self.rates: Final = Rates()
        self.seats: Final = LearnedSeats()

    def offers(self, fleet: Fleet, now: float) -> list[WorkerView]:
        """The workers for a policy, each marked with whether it accepts a request."""
        return [self._offer(standing, now) for standing in fleet.workers]

    def judge(self, newcomer: Candidate, fleet: Fleet, now: float) -> Refusal | None:
        """Of one that has just joined and has to wait; None lets it."""
        forecast = self._forecast(newcomer, fleet)
        allowed_s = (newcomer.deadline - now) * HEADROOM
        return _verdict(forecast, allowed_s, newcomer, fleet)

    def too_late(self, candidate: Candidate, fleet: Fleet, now: float) -> Refusal | None:
        """Of one whose turn has come: None while its first token can still be in time."""
        forecast = Outlook(fleet, self.rates).forecast(0, 0, candidate.prompt_tokens)
        return _verdict(replace(forecast, wait_s=0.0), candidate.deadline - now, candidate, fleet)

    def surplus(self, fleet: Fleet) -> tuple[Candidate, Refusal] | None:
        """Whoever has to go because too many wait: the last in line, who need not be the last to
        come."""
        if len(self.line) <= self._max_queued or (last := self.line.last()) is None:
            return None
        forecast = self._forecast(last, fleet)
        message = f"{self._max_queued} requests wait for room already"
        return last, Refusal("queue_full", message, forecast.wait_s or UNKNOWN_RETRY_S)

    def review(self, fleet: Fleet, now: float) -> list[tuple[Candidate, Refusal]]:
        """Those who wait and would be too late; the others are reckoned to move up."""
        outlook, answer_s = Outlook(fleet, self.rates), self.rates.answer_s or 0.0
        ahead = tokens = 0
        refused: list[tuple[Candidate, Refusal]] = []
        for candidate in self.line.order():
            forecast = outlook.forecast(ahead, tokens, candidate.prompt_tokens)
            left_s = candidate.deadline - now
            doubt_s = min(answer_s, (candidate.deadline - candidate.arrived) * DOUBT)
            allowed_s = left_s + doubt_s if left_s > 0 else 0.0
            verdict = _verdict(forecast, allowed_s, candidate, fleet)
            if verdict is None:
                ahead += 1
                tokens += candidate.prompt_tokens
            else:
                refused.append((candidate, verdict))
        return refused

    def predicted_wait_s(self, fleet: Fleet) -> float:
        """Of a request that would join at the end now; 0 while nobody waits or nothing is known."""
        if not self.line:
            return 0.0
        return Outlook(fleet, self.rates).forecast(len(self.line), self.line.tokens, 0).wait_s

    def _offer(self, standing: Standing, now: float) -> WorkerView:
        view = standing.view
        seats = view.seats if view.seats is not None else self.seats.limit(view.worker, now)
        open_ = accepts(standing, seats, self.rates.tokens_per_s(view.worker))
        return view if open_ else replace(view, accepts=False)

    def _forecast(self, candidate: Candidate, fleet: Fleet) -> Forecast:
        requests, tokens = self.line.ahead(candidate)
        return Outlook(fleet, self.rates).forecast(requests, tokens, candidate.prompt_tokens)


def nobody() -> Refusal:
    """There is no worker that could serve anything."""
    message = "no worker is ready to serve requests"
    return Refusal("no_worker", message, UNKNOWN_RETRY_S, status=503)


def _verdict(
    forecast: Forecast, allowed_s: float, candidate: Candidate, fleet: Fleet
) -> Refusal | None:
    """A prompt that takes longer than its deadline by itself is judged by its wait alone: it would
    never get in otherwise."""
    limit_s = candidate.deadline - candidate.arrived
    first_s = forecast.wait_s + (forecast.prompt_s if forecast.prompt_s < limit_s else 0.0)
    if allowed_s > 0 and first_s <= allowed_s:
        return None
    if not fleet.workers:
        return nobody() if allowed_s <= 0 else None
    message = (
        f"too many requests: the first token would come in about {first_s:.1f} s, "
        f"too late to be sure of the limit of {limit_s:g} s"
    )
    excess_s = first_s - limit_s * HEADROOM
    retry_after_s = min(excess_s, forecast.wait_s) if excess_s > 0 else UNKNOWN_RETRY_S
    return Refusal("deadline", message, retry_after_s)
