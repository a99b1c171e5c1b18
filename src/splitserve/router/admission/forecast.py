"""When the first token of a request would come. Pure; what is not known yet counts as no time.

With ``n`` requests running that take ``t`` seconds each, ``n / t`` finish a second, whatever it is
that holds them up (Little's law). So the time of one answer, which is known from the first that
ends, gives the rate at which places become free.
"""

from dataclasses import dataclass

from splitserve.ids import WorkerId
from splitserve.router.admission.rates import Rates
from splitserve.router.admission.views import Fleet, Standing


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds from now. ``wait_s`` until it is given to a worker, ``prompt_s`` from there to the
    first token."""

    wait_s: float
    prompt_s: float

    @property
    def first_token_s(self) -> float:
        return self.wait_s + self.prompt_s


class Outlook:
    """What rates and loads say at one moment, for any number of requests."""

    def __init__(self, fleet: Fleet, rates: Rates) -> None:
        self._prompts = _prompt_workers(fleet, rates)
        known = [rate for _, rate in self._prompts]
        usable = len(_computing(fleet))
        # Workers not measured yet are taken to be as fast as the others.
        self._tokens_per_s = sum(known) / len(known) * usable if known else None
        answer_s = rates.answer_s
        self._place_s = answer_s / fleet.running if answer_s is not None and fleet.running else None

    def forecast(self, ahead: int, ahead_tokens: int, prompt_tokens: int) -> Forecast:
        """For a request with ``ahead`` requests of ``ahead_tokens`` prompt tokens before it, all
        waiting for room."""
        wait_s = 0.0
        if self._place_s is not None:
            wait_s = (ahead + 1) * self._place_s
        if self._tokens_per_s:
            wait_s = max(wait_s, ahead_tokens / self._tokens_per_s)
        return Forecast(wait_s, self._prompt_s(prompt_tokens))

    def _prompt_s(self, tokens: int) -> float:
        times = ((s.view.waiting_tokens + tokens) / rate for s, rate in self._prompts)
        return min(times, default=0.0)


def _computing(fleet: Fleet) -> list[Standing]:
    """Workers that compute prompts as things are meant to be."""
    prefills = [s for s in fleet.workers if s.view.role == "prefill"]
    return prefills or list(fleet.workers)


def _prompt_workers(fleet: Fleet, rates: Rates) -> list[tuple[Standing, float]]:
    found: list[tuple[Standing, float]] = []
    for standing in _computing(fleet):
        rate = rates.tokens_per_s(WorkerId(standing.view.worker))
        if rate is not None:
            found.append((standing, rate))
    return found
