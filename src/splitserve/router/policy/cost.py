"""Splits a request only where that is predicted to cost less than to compute it where it is
answered.

Which workers come into question, and which of a kind, is ``least_loaded``'s choice. Then two ways
are compared, in seconds of waiting that clients would notice:

    split   prompts waiting at prefill + prefill + exposed transfer + grant
    whole   prompts waiting at decode + prompt there
            + the time of the prompt for each answer that it holds up: those that run or are on
              their way, and half of it for those that will come meanwhile

Only what is not cached there has to be computed, and only what decode lacks to be moved.

The times are learnt from this deployment's own placements. Until both ways are known every request
is split, but for a probe now and then (see ``probes``): a prompt that is not longer than usual goes
the other way where it holds nobody up, or where decode would be cheaper if it were as fast as
prefill.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from splitserve.router.policy import least_loaded, split
from splitserve.router.policy.arrivals import Arrivals
from splitserve.router.policy.base import (
    Estimate,
    Observation,
    Placement,
    RequestView,
    WorkerView,
)
from splitserve.router.policy.probes import Probes
from splitserve.router.policy.prompt_times import PromptTimes, SplitTime, WholeTime
from splitserve.router.policy.split import Choice
from splitserve.router.policy.turns import Turns

_USUAL_MEMORY: Final = 100
"""Over how many requests the usual length of a prompt is taken."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """Both ways for one request; None while not known. ``held_up`` are the answers that ``whole``
    would keep waiting."""

    whole: WholeTime | None
    split: SplitTime | None
    held_up: float

    @property
    def known(self) -> bool:
        return self.whole is not None and self.split is not None

    @property
    def held_up_s(self) -> float:
        return 0.0 if self.whole is None else self.whole.compute_s * self.held_up

    @property
    def whole_might_be_cheaper(self) -> bool:
        """It would if decode, with no prompt waiting, were as fast as prefill."""
        if self.split is None:
            return False
        return self.split.prefill_s * (1 + self.held_up) <= self.split.total_s

    @property
    def whole_is_cheaper(self) -> bool:
        if self.whole is None or self.split is None:
            return False
        return self.whole.total_s + self.held_up_s <= self.split.total_s


class ByCost:
    """Implements Policy."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._times = PromptTimes()
        self._probes = Probes()
        self._arrivals = Arrivals()
        self._usual_tokens = 0.0
        self._seen = 0

    def place(
        self, request: RequestView, workers: Sequence[WorkerView], now: float
    ) -> Placement | None:
        choice = least_loaded.choose(request, workers, self._turns)
        if choice is None:
            return self._place_overflow(request, workers, now)
        if choice.prefill is None:
            return self._take(request, choice, None, now)
        ways = self._ways(request, choice.decode, choice.prefill, workers, now)
        whole = ways.whole_is_cheaper
        other = choice.prefill if whole else choice.decode
        hopeful = not whole and ways.whole_might_be_cheaper
        cheap = self._cheap(request, other, hopeful=hopeful)
        probe = self._probes.due(whole, cheap=cheap, known=ways.known)
        return self._decide(request, choice, ways, whole != probe, "probe" if probe else "", now)

    def observed(self, observation: Observation) -> None:
        self._times.observed(observation)

    def _place_overflow(
        self, request: RequestView, workers: Sequence[WorkerView], now: float
    ) -> Placement | None:
        """No prefill worker takes it now: it waits for one, unless decode would be cheaper even
        than one that did."""
        ready = [replace(w, accepts=True) if w.role == "prefill" else w for w in workers]
        choice = least_loaded.choose(request, ready, self._turns)
        if choice is None or choice.prefill is None:
            return None
        ways = self._ways(request, choice.decode, choice.prefill, workers, now)
        if not ways.whole_is_cheaper:
            return None
        return self._decide(request, choice, ways, True, "prefill is full", now)

    def _ways(
        self,
        request: RequestView,
        decode: WorkerView,
        prefill: WorkerView,
        workers: Sequence[WorkerView],
        now: float,
    ) -> _Ways:
        held, tokens = request.held, request.prompt_tokens
        lacking = tokens - held.at(decode.worker)
        apart_tokens = tokens - held.for_prefill(prefill.worker, decode.worker)
        whole = self._times.whole(decode.worker, lacking, decode.waiting_tokens)
        apart = self._times.split(prefill.worker, apart_tokens, lacking, prefill.waiting_tokens)
        compute_s = 0.0
        if whole is not None:
            compute_s = whole.compute_s
        elif apart is not None:
            compute_s = apart.prefill_s
        answering = sum(w.role != "prefill" for w in workers)
        coming = self._arrivals.per_s(now) * compute_s / answering
        return _Ways(whole, apart, least_loaded.requests(decode) + coming / 2)

    def _cheap(self, request: RequestView, worker: WorkerView, *, hopeful: bool) -> bool:
        """Whether a prompt there costs no more than a usual one, and either holds nobody up or is
        ``hopeful``."""
        if request.prompt_tokens > self._usual_tokens or worker.waiting_tokens:
            return False
        return hopeful or least_loaded.requests(worker) == 0

    def _decide(
        self,
        request: RequestView,
        choice: Choice,
        ways: _Ways,
        whole: bool,
        remark: str,
        now: float,
    ) -> Placement:
        assert choice.prefill is not None
        computing = choice.decode if whole else choice.prefill
        estimate = Estimate(
            computing.waiting_tokens,
            None if ways.whole is None else ways.whole.total_s,
            None if ways.split is None else ways.split.total_s,
        )
        chosen = replace(
            choice,
            prefill=None if whole else choice.prefill,
            reason=_reason(choice, ways, whole, remark),
            prefill_cached_tokens=0 if whole else choice.prefill_cached_tokens,
        )
        return self._take(request, chosen, estimate, now)

    def _take(
        self, request: RequestView, choice: Choice, estimate: Estimate | None, now: float
    ) -> Placement:
        self._arrivals.note(now)
        self._seen = min(self._seen + 1, _USUAL_MEMORY)
        self._usual_tokens += (request.prompt_tokens - self._usual_tokens) / self._seen
        return split.take(choice, self._turns, estimate)


def _reason(choice: Choice, ways: _Ways, whole: bool, remark: str) -> str:
    way = "whole" if whole else "split"
    head = f"{way} ({remark})" if remark else way
    return f"{head}: {_of_whole(ways)}, {_of_split(ways.split)}; {choice.reason}"


def _of_whole(ways: _Ways) -> str:
    if ways.whole is None:
        return "whole not known yet"
    return f"whole {_ms(ways.whole.total_s)} and {_ms(ways.held_up_s)} of others'"


def _of_split(time: SplitTime | None) -> str:
    if time is None:
        return "split not known yet"
    return (
        f"split {_ms(time.total_s)} (queue {_ms(time.queue_s)}, prefill {_ms(time.prefill_s)}, "
        f"transfer {_ms(time.exposed_s)}, grant {_ms(time.rest_s)})"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
