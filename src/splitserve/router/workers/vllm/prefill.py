"""The prefill leg of a handoff: Prefill."""

from dataclasses import replace

import msgspec

from splitserve.protocol.control import Began, StepTokens
from splitserve.protocol.generate import GenerateRequest, TokenChunk
from splitserve.protocol.handoff import Prefill, PrefillDone
from splitserve.router.workers.vllm import bodies
from splitserve.router.workers.vllm.answers import AnswerReader, Event, began
from splitserve.router.workers.vllm.desk import Desk
from splitserve.router.workers.vllm.dialects.base import Dialect, DialectError, Instance, Leg
from splitserve.router.workers.vllm.exactness import first_token_at_once
from splitserve.router.workers.vllm.exchange import DecodeSide
from splitserve.router.workers.vllm.failure import LegFailed

LOST_DECODE = LegFailed("decode_lost", "the decode side of the handoff is not there any more")


class PrefillPart:
    """Speaks the first token for both legs, whichever drew it, so that the router sees the order it
    knows: first token, handover, the rest.

    PrefillDone comes when decode has drawn its first token, which it cannot without the KV:
    ``exposed_s`` is from prefill's answer to there. It holds the transfer, decode's queue and its
    first step, and is 0 where decode was faster or answers in one piece. ``prefill_s`` is the
    request as seen from here, less what vLLM says of its queue. The bytes moved are vLLM's secret:
    0.
    """

    def __init__(self, desk: Desk, order: Prefill, dialect: Dialect, decode: DecodeSide) -> None:
        self._desk = desk
        self._request = order.request
        self._handoff = order.target.handoff
        self._reader = order.target.worker
        self._dialect = dialect
        self._decode = decode
        self._asked_at = desk.around.clock()
        self._answered_at: float | None = None
        self._taken_at: float | None = None
        self._queue_s = 0.0
        self._cached_tokens: int | None = None
        self._began: tuple[Began, ...] = ()
        self._first_waited = False
        self._spoken = False
        self._over = False
        self._task = desk.spawn(order.request.request_id, self._run())

    @property
    def instance(self) -> Instance:
        return self._desk.around.instance

    def abort(self) -> None:
        self._over = True
        # A decode leg that was asked before this one has answered may wait for its KV, and vLLM
        # keeps the blocks of such a wait until it comes, also when aborted (vllm#46283).
        if not self._dialect.concurrent:
            self._task.cancel()

    def taken_over(self, first: TokenChunk | None) -> None:
        if self._over:
            return
        self._taken_at = self._desk.around.clock()
        if first is not None:
            self._desk.around.exchange.note("first_token_waits")
            self._first_waited = True
            self._speak(msgspec.structs.replace(first, cached_tokens=self._cached_tokens))
        if self._answered_at is not None:
            self._done()

    async def _run(self) -> None:
        try:
            await self._prefill()
        except (LegFailed, DialectError) as error:
            self._failed(error)

    async def _prefill(self) -> None:
        leg = self._dialect.prefill(self._handoff, self.instance, self._decode.instance)
        self._decode.prefilling(self)
        asked = bodies.prefill(self._request, self._handoff, self._continued(leg))
        event = await self._desk.whole(self._request, asked)
        if self._over:
            return
        self._answered_at = self._desk.around.clock()
        self._cached_tokens = event.cached_tokens
        told = began(self._request.request_id, event, self._answered_at - self._asked_at)
        self._began, self._queue_s = (told,), told.queue_s or 0.0
        self._hand_over(_first_token(self._request, event), event)

    def _continued(self, leg: Leg) -> Leg:
        """Reads the beginning of the prompt where decode keeps it from the last turn. Should that
        fail, the next attempt finds no such turn any more and computes all of it."""
        around = self._desk.around
        exchange, here = around.exchange, around.worker
        params = exchange.turns.take(
            self._request,
            around.instance,
            lambda decode: here in exchange.writers(decode),
            around.clock(),
        )
        if params is None:
            return leg
        exchange.note("turn_continued")
        return replace(leg, params=params)

    def _hand_over(self, first: TokenChunk, event: Event) -> None:
        returned = event.kv_transfer_params
        if self._taken_at is not None:
            self._done()
        elif first.finish_reason is not None:
            self._speak(first)
            self._decode.unneeded(returned)
            self._done()
        elif first_token_at_once(self._request.sampling):
            self._desk.around.exchange.note("first_token_at_once")
            self._speak(first)
            self._decode.prefilled(first.token_ids[0], returned)
        else:
            self._decode.prefilled(None, returned)

    def _speak(self, first: TokenChunk) -> None:
        if not self._spoken:
            self._spoken = True
            self._desk.tell(StepTokens((first,), self._began))

    def _done(self) -> None:
        self._over = True
        answered = self._desk.around.clock() if self._answered_at is None else self._answered_at
        waited = 0.0 if self._taken_at is None else max(0.0, self._taken_at - answered)
        took = max(0.0, answered - self._asked_at - self._queue_s)
        request_id = self._request.request_id
        done = PrefillDone(
            request_id,
            self._handoff,
            0,
            self._queue_s,
            took,
            waited,
            until_token=True,
            first_waited=self._first_waited,
        )
        self._desk.tell(done)
        self._desk.end(request_id)

    def _failed(self, error: LegFailed | DialectError) -> None:
        if self._taken_at is not None:
            self._done()  # decode has the KV: how this leg ended makes no difference
            return
        if self._over:
            return
        self._over = True
        if isinstance(error, DialectError):
            self._desk.around.exchange.note("params_unusable")
            self._desk.around.exchange.unlink(self._desk.around.worker, self._reader)
            error = LegFailed("transfer_failed", str(error))
        self._desk.fail(self._request.request_id, error)


def _first_token(request: GenerateRequest, event: Event) -> TokenChunk:
    """With ``finish_reason`` if it ends the answer, which it does not by being the one token that
    was asked for. Raises LegFailed when there is none."""
    chunk = AnswerReader(request.request_id, 0, request.sampling.logprobs).chunk(event)
    if chunk is None or not chunk.token_ids:
        raise LegFailed("engine", "vLLM's prefill answered without a token")
    ended = chunk.finish_reason == "stop" or request.sampling.max_tokens == 1
    return TokenChunk(
        chunk.request_id,
        0,
        chunk.token_ids[:1],
        chunk.finish_reason if ended else None,
        chunk.stop_reason if ended else None,
        None if chunk.logprobs is None else chunk.logprobs[:1],
        event.cached_tokens,
    )
