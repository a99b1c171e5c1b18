"""Sends requests to one endpoint and gives a record of each. It never raises for what an endpoint
does, and never repeats a request."""

import asyncio
import math
from dataclasses import dataclass
from typing import Final

from splitserve.clock import Clock, monotonic
from splitserve.lab.load.history import Histories, served_by
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest, body_of
from splitserve.lab.load.waiting import wait_until
from splitserve.lab.load.wire.exchange import Exchange, Limits
from splitserve.lab.load.wire.http import Connection
from splitserve.lab.load.wire.pool import Pool
from splitserve.lab.load.wire.target import Target

LEAVE_S: Final = 1.0
"""How long a response whose answer is over may take to become whole and free its connection."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What every record of a run says of it. ``origin_s`` is the run's start on the clock."""

    arm: str
    run: str
    origin_s: float


class LoadClient:
    """One endpoint's client. Use within one event loop, and ``close`` it."""

    def __init__(
        self,
        target: Target,
        asking: Asking,
        labels: Labels,
        limits: Limits,
        clock: Clock = monotonic,
    ) -> None:
        self._target = target
        self._asking = asking
        self._labels = labels
        self._limits = limits
        self._clock = clock
        self._pool = Pool(target, clock)
        self._histories = Histories()

    def now(self) -> float:
        """Seconds since the run's start."""
        return self._clock() - self._labels.origin_s

    async def warm(self, connections: int) -> None:
        """Opens connections for requests within the next seconds. Raises OSError."""
        await self._pool.warm(connections)

    def close(self) -> None:
        """Closes all connections; running requests must have ended."""
        self._pool.close()

    async def send(
        self,
        request: LoadRequest,
        intended_s: float,
        *,
        cut_s: float = math.inf,
        warmup: bool = False,
    ) -> RequestRecord:
        """Sends ``request`` at ``intended_s`` of the run, or now if that has passed.

        Call it some time ahead: the connection is opened before the request is due. At
        ``cut_s`` the run waits no longer. The turns of a session are sent one after the other.
        """
        record = self._blank(request, intended_s, warmup)
        request = self._histories.whole(request)
        message = self._message(request)
        try:
            async with asyncio.timeout(self._limits.connect_s):
                connection = await self._pool.take()
        except (OSError, TimeoutError) as error:
            record.ended_s = self.now()
            record.error = f"{type(error).__name__}: {error}"
            return record
        await wait_until(self._labels.origin_s + intended_s, self._clock)
        exchange = Exchange(
            request.max_tokens if request.forced else None, keeps=request.session is not None
        )
        if connection.closed:
            connection = await self._again(connection)
        if connection.closed:
            record.ended_s = self.now()
            record.error = "the connection was closed before the request was sent"
            return record
        record.reused_connection = connection.exchanges > 0
        sent_s = connection.start(message, exchange)
        await self._wait(exchange, sent_s, cut_s)
        self._leave(connection, exchange)
        self._histories.answered(request, served_by(exchange.heard))
        return self._filled(record, exchange, sent_s)

    def unsent(
        self, request: LoadRequest, intended_s: float, outcome: Outcome, *, warmup: bool = False
    ) -> RequestRecord:
        """The record of a request that is not sent at all."""
        record = self._blank(request, intended_s, warmup)
        # Its turn passes with what it would have said.
        self._histories.whole(request)
        record.outcome, record.ended_s = outcome, max(intended_s, self.now())
        record.error = "it was not sent: its time was over before it could be"
        return record

    async def _again(self, closed: Connection) -> Connection:
        """The server closed a kept connection while its request was waiting to be due."""
        try:
            async with asyncio.timeout(self._limits.connect_s):
                return await self._pool.take()
        except (OSError, TimeoutError):
            return closed

    def _message(self, request: LoadRequest) -> bytes:
        body = body_of(request, self._asking)
        return self._target.head(request.path, request.request_id, len(body)) + body

    async def _wait(self, exchange: Exchange, sent_s: float, cut_s: float) -> None:
        while not exchange.ended.is_set():
            due_s, outcome = exchange.deadline(sent_s, self._limits)
            end_s = self._labels.origin_s + cut_s
            if end_s < due_s:
                due_s, outcome = end_s, Outcome.TIMEOUT_TOTAL
            left_s = due_s - self._clock()
            if left_s <= 0:
                exchange.cut(self._clock(), outcome, "the client waited no longer")
                return
            try:
                async with asyncio.timeout(left_s):
                    await exchange.ended.wait()
            except TimeoutError:
                continue

    def _leave(self, connection: Connection, exchange: Exchange) -> None:
        """Keeps the connection if its response is whole, or is only missing its end."""
        if not connection.busy:
            return
        if exchange.answer.done:
            loop = asyncio.get_running_loop()
            loop.call_later(LEAVE_S, self._drop_if_same, connection, connection.exchanges)
        else:
            self._pool.drop(connection)

    def _drop_if_same(self, connection: Connection, exchanges: int) -> None:
        if connection.busy and connection.exchanges == exchanges:
            self._pool.drop(connection)

    def _blank(self, request: LoadRequest, intended_s: float, warmup: bool) -> RequestRecord:
        return RequestRecord(
            request_id=request.request_id,
            arm=self._labels.arm,
            run=self._labels.run,
            intended_s=intended_s,
            sent_s=None,
            first_byte_s=None,
            events=[],
            ended_s=intended_s,
            outcome=Outcome.CONNECT_ERROR,
            counting=Counting.EVENTS,
            max_tokens=request.max_tokens,
            session=request.session,
            turn=request.turn,
            warmup=warmup,
        )

    def _filled(self, record: RequestRecord, exchange: Exchange, sent_s: float) -> RequestRecord:
        origin_s, answer = self._labels.origin_s, exchange.answer
        record.sent_s = sent_s - origin_s
        record.first_byte_s = _since(exchange.first_byte_s, origin_s)
        record.events = [(t_s - origin_s, count) for t_s, count in answer.events]
        record.ended_s = exchange.ended_s - origin_s
        record.outcome, record.error = exchange.outcome, exchange.error
        record.status, record.counting = exchange.status, answer.counting
        record.prompt_tokens, record.cached_tokens = answer.prompt_tokens, answer.cached_tokens
        record.output_tokens, record.finish_reason = answer.output_tokens, answer.finish_reason
        record.done, record.digest = answer.done, answer.digest
        record.answer_s = _since(answer.answer_s, origin_s)
        record.served_id, record.metrics = answer.served_id, answer.metrics
        record.workers = answer.workers
        return record


def _since(t_s: float | None, origin_s: float) -> float | None:
    return None if t_s is None else t_s - origin_s
