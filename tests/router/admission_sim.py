"""Workers and requests in simulated time, driven by the real admission and policy."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from splitserve.ids import RequestId, WorkerId
from splitserve.router.admission.core import Admission
from splitserve.router.admission.views import Candidate, Fleet, Standing
from splitserve.router.policy.base import RequestView, WorkerView
from splitserve.router.policy.least_loaded import LeastLoaded


@dataclass(frozen=True)
class Ask:
    at: float
    prompt_tokens: int = 20
    answer_s: float = 1.0
    priority: int = 0
    owner: str = ""


@dataclass
class SimWorker:
    """Runs ``seats`` answers at once; computes prompts one after the other.

    ``says`` whether it tells how many seats it has. ``room`` are tokens of KV.
    """

    name: str
    seats: int
    tokens_per_s: float = 1e6
    says: bool = True
    room: int = 10**9
    running: set[str] = field(default_factory=set)
    held: int = 0
    waiting_tokens: int = 0
    unsettled: int = 0
    prompts_done_at: float = 0.0

    def standing(self) -> Standing:
        view = WorkerView(
            worker=WorkerId(self.name),
            role="colocated",
            in_flight=len(self.running),
            running=len(self.running) - self.unsettled,
            waiting=0,
            waiting_tokens=self.waiting_tokens,
            free_tokens=self.room - self.held,
            seats=self.seats if self.says else None,
        )
        return Standing(view, self.unsettled)


@dataclass
class Outcome:
    """Times in seconds: ``first_token`` after arrival, ``refused`` after arrival."""

    order: list[int] = field(default_factory=list)
    first_token: dict[int, float] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=dict)
    refused: dict[int, float] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    retry_after: dict[int, float] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)


class Simulation:
    TICK_S = 0.1

    def __init__(
        self,
        workers: Sequence[SimWorker],
        asks: Sequence[Ask],
        *,
        deadline_s: float = 30.0,
        max_queued: int = 256,
        leaves: Callable[[int], float | None] = lambda _: None,
    ) -> None:
        self.workers = list(workers)
        self.asks = list(asks)
        self.deadline_s = deadline_s
        self.admission = Admission(max_queued)
        self.policy = LeastLoaded()
        self.outcome = Outcome()
        self.now = 0.0
        self._running = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        for number, ask in enumerate(asks):
            self._at(ask.at, lambda n=number: self._arrive(n))  # type: ignore[misc]
            gone = leaves(number)
            if gone is not None:
                self._at(ask.at + gone, lambda n=number: self._leave(n))  # type: ignore[misc]

    def run(self) -> Outcome:
        self._at(self.TICK_S, self._tick)
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            act()
        return self.outcome

    def _at(self, when: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act))

    def _fleet(self) -> Fleet:
        return Fleet([w.standing() for w in self.workers], self._running)

    def _candidate(self, number: int) -> Candidate:
        ask = self.asks[number]
        return Candidate(
            RequestId(str(number)),
            ask.prompt_tokens,
            ask.priority,
            ask.owner,
            number,
            ask.at,
            ask.at + self.deadline_s,
        )

    def _arrive(self, number: int) -> None:
        candidate = self._candidate(number)
        self.admission.line.join(candidate)
        self._place()
        if candidate not in self.admission.line:
            return
        refusal = self.admission.judge(candidate, self._fleet(), self.now)
        if refusal is not None:
            self._refuse(candidate, refusal.reason, refusal.retry_after_s)
        elif (surplus := self.admission.surplus(self._fleet())) is not None:
            self._refuse(surplus[0], surplus[1].reason, surplus[1].retry_after_s)

    def _leave(self, number: int) -> None:
        self.admission.line.leave(self._candidate(number))

    def _refuse(self, candidate: Candidate, reason: str, retry_after_s: float) -> None:
        self.admission.line.leave(candidate)
        self.outcome.refused[candidate.serial] = self.now - candidate.arrived
        self.outcome.reasons[candidate.serial] = reason
        self.outcome.retry_after[candidate.serial] = retry_after_s

    def _tick(self) -> None:
        for candidate, refusal in self.admission.review(self._fleet(), self.now):
            self._refuse(candidate, refusal.reason, refusal.retry_after_s)
        self._place()
        if self._events:
            self._at(self.now + self.TICK_S, self._tick)

    def _place(self) -> None:
        while (first := self.admission.line.first()) is not None:
            ask = self.asks[first.serial]
            view = RequestView(ask.prompt_tokens, 1)
            offers = self.admission.offers(self._fleet(), self.now)
            placement = self.policy.place(view, offers, self.now)
            if placement is None:
                return
            late = self.admission.too_late(first, self._fleet(), self.now)
            if late is not None and self.now > first.arrived:
                self._refuse(first, late.reason, late.retry_after_s)
                continue
            self.admission.line.serve(first)
            worker = next(w for w in self.workers if w.name == placement.decode)
            self._start(first, worker)

    def _start(self, candidate: Candidate, worker: SimWorker) -> None:
        if len(worker.running) >= worker.seats:
            self.admission.seats.refused(WorkerId(worker.name), len(worker.running), self.now)
            self.admission.line.rejoin(candidate)
            self.outcome.reasons.setdefault(-1 - candidate.serial, "asked in vain")
            return
        self.outcome.order.append(candidate.serial)
        ask = self.asks[candidate.serial]
        self._running += 1
        worker.running.add(candidate.request_id)
        worker.held += ask.prompt_tokens
        worker.waiting_tokens += ask.prompt_tokens
        worker.unsettled += 1
        most = self.outcome.most
        most[worker.name] = max(most.get(worker.name, 0), len(worker.running))
        rate = self.admission.rates.prompt(WorkerId(worker.name))
        rate.begin(self.now, alone=worker.unsettled == 1)
        begin = max(self.now, worker.prompts_done_at)
        worker.prompts_done_at = begin + ask.prompt_tokens / worker.tokens_per_s
        placed = self.now
        self._at(worker.prompts_done_at, lambda: self._first(candidate, worker, placed))

    def _first(self, candidate: Candidate, worker: SimWorker, placed: float) -> None:
        ask = self.asks[candidate.serial]
        worker.waiting_tokens -= ask.prompt_tokens
        worker.unsettled -= 1
        self.outcome.first_token[candidate.serial] = self.now - ask.at
        rate = self.admission.rates.prompt(WorkerId(worker.name))
        saturated = len(self.admission.line) > 0
        rate.done(ask.prompt_tokens, self.now, more=worker.unsettled > 0, saturated=saturated)
        self._at(self.now + ask.answer_s, lambda: self._end(candidate, worker, placed))
        self._place()

    def _end(self, candidate: Candidate, worker: SimWorker, placed: float) -> None:
        worker.running.discard(candidate.request_id)
        worker.held -= candidate.prompt_tokens
        self._running -= 1
        self.outcome.done[candidate.serial] = self.now
        self.admission.rates.answered(self.now - placed)
        self._place()
