"""The decode leg of a handoff: Reserve, and what follows from it.

    offered ---prefilling (concurrent)---> started --headers--> opened --first token--> decoding
       '-----prefilled (serial)--------------^

A leg that is given up after it started and before vLLM has begun to answer runs on until then: only
a request that vLLM has taken in makes it tell prefill to let the blocks go.

Where the pair can go on from finished turns and nobody looks at the answer before its end, it comes
in one piece, since only then does vLLM tell where it keeps the turn.
"""

import asyncio
from typing import Final

from splitserve.protocol.control import StepTokens
from splitserve.protocol.generate import TokenChunk
from splitserve.protocol.handoff import Reserve
from splitserve.router.workers.vllm import bodies
from splitserve.router.workers.vllm.answers import AnswerReader, Event, began, split_first
from splitserve.router.workers.vllm.calls import SILENCE_S
from splitserve.router.workers.vllm.desk import Desk
from splitserve.router.workers.vllm.dialects.base import Dialect, Instance, Params
from splitserve.router.workers.vllm.dialects.nixl_turns import bidirectional
from splitserve.router.workers.vllm.exchange import PrefillSide
from splitserve.router.workers.vllm.failure import REFUSALS, LegFailed

ORPHAN_S: Final = 5.0
"""How long a leg that nobody wants may take until vLLM has taken it in."""


TOKEN_S: Final = 1.0
"""How long vLLM may take for each token of an answer in one piece before its KV counts as late."""


class _Differs(Exception):
    """Decode drew another first token than the client has."""


class DecodePart:
    """Also the DecodeSide that prefill talks to."""

    def __init__(self, desk: Desk, order: Reserve, dialect: Dialect) -> None:
        self._desk = desk
        self._request = order.request
        self._handoff = order.handoff
        self._writer = order.writer
        self._dialect = dialect
        self._reader = self._new_reader(0)
        self._prefill: PrefillSide | None = None
        self._spoken: int | None = None
        self._returned: Params | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at = self._drawn_at = 0.0
        self._last: TokenChunk | None = None
        self._patience_s = desk.around.kv_wait_s
        self._opened = self._taken_over = self._decoding = self._over = False
        desk.around.exchange.offer(order.handoff, self)

    # DecodeSide

    @property
    def instance(self) -> Instance:
        return self._desk.around.instance

    def prefilling(self, prefill: PrefillSide) -> None:
        self._prefill = prefill
        if self._dialect.concurrent and not self._over:
            self._start(None)

    def prefilled(self, spoken: int | None, returned: Params | None) -> None:
        if self._over:
            self._release(returned)
            return
        self._spoken, self._returned = spoken, returned
        if self._task is None:
            self._start(returned)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._patience_s, self._late)

    def unneeded(self, returned: Params | None) -> None:
        if self._task is None:
            self._release(returned)
        self._give_up()

    # Part

    def abort(self) -> None:
        self._give_up()

    def _give_up(self) -> None:
        self._over = True
        self._desk.around.exchange.withdraw(self._handoff)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is None:
            return
        if self._opened:
            self._task.cancel()
        else:
            self._timer = asyncio.get_running_loop().call_later(ORPHAN_S, self._task.cancel)

    def _start(self, returned: Params | None) -> None:
        assert self._prefill is not None
        leg = self._dialect.decode(self._handoff, self._prefill.instance, self.instance, returned)
        whole = self._in_one_piece(self._prefill.instance)
        asked = bodies.decode(self._request, self._handoff, leg, stream=not whole)
        self._asked_at = self._desk.around.clock()
        self._task = self._desk.spawn(self._request.request_id, self._run(asked))
        if whole:
            tokens_s = self._request.sampling.max_tokens * TOKEN_S
            self._patience_s = min(self._patience_s + tokens_s, SILENCE_S)
            # Its first token will not be seen: prefill's part would seem to last to the very end.
            self._take_over(None)

    def _in_one_piece(self, prefill: Instance) -> bool:
        """Only where the client's first token is prefill's: nothing is told of decode's until the
        end."""
        wanted = self._request.whole and self._spoken is not None
        return wanted and bidirectional(prefill) and bidirectional(self.instance)

    async def _run(self, asked: bodies.Asked) -> None:
        try:
            try:
                if asked.stream:
                    await self._desk.stream(self._request, asked, self._open, self._take)
                else:
                    self._take_whole(await self._desk.whole(self._request, asked))
            except _Differs:
                await self._replay()
            if not self._reader.finished:
                raise LegFailed("engine", "vLLM's answer ended early")
        except LegFailed as failure:
            if self._last is None:
                self._failed(failure)
        self._finish(None)

    def _open(self) -> None:
        self._opened = True
        if self._over:
            self._stop_timer()
            raise LegFailed("cancelled", "nobody wants it any more")

    def _take_whole(self, event: Event) -> None:
        self._open()
        self._take(event)
        around = self._desk.around
        if self._reader.finished and around.exchange.turns.keep(
            self._request,
            event.choices[0].token_ids or (),
            event.kv_transfer_params,
            around.worker,
            self.instance,
            around.clock(),
        ):
            around.exchange.note("turn_kept")

    def _take(self, event: Event) -> None:
        chunk = self._reader.chunk(event)
        if self._over:
            return
        if chunk is not None:
            self._take_chunk(chunk)
        if event.usage is not None:
            self._finish(event)

    def _take_chunk(self, chunk: TokenChunk) -> None:
        if self._decoding:
            self._pass_on(chunk)
        elif not chunk.token_ids:
            raise LegFailed("engine", "vLLM's decode answered without a token")
        else:
            self._begin(chunk)

    def _begin(self, chunk: TokenChunk) -> None:
        """The first token is drawn. The client has it from prefill, or gets it through prefill."""
        self._decoding = True
        self._drawn_at = self._desk.around.clock()
        self._stop_timer()
        if self._spoken is None:
            first, rest = split_first(chunk)
            self._take_over(first)
            # Prefill's client ends the answer then; the router's Abort takes the entry here away.
            self._over = first.finish_reason is not None
        else:
            self._take_over(None)
            if chunk.token_ids[0] != self._spoken:
                raise _Differs
            rest = _without_first(chunk)
        if rest is not None:
            self._pass_on(rest)

    def _take_over(self, first: TokenChunk | None) -> None:
        if not self._taken_over:
            self._taken_over = True
            assert self._prefill is not None
            self._prefill.taken_over(first)

    async def _replay(self) -> None:
        assert self._spoken is not None
        self._desk.around.exchange.note("first_token_differs")
        self._reader = self._new_reader(1)
        asked = bodies.replay(self._request, self._handoff, self._spoken)
        await self._desk.stream(self._request, asked, self._open, self._take)

    def _pass_on(self, chunk: TokenChunk) -> None:
        if chunk.finish_reason is None:
            self._desk.tell(StepTokens((chunk,)))
        else:
            self._last = chunk

    def _finish(self, event: Event | None) -> None:
        """The last chunk waits for what vLLM sends right behind it: how long it took."""
        chunk, self._last = self._last, None
        if chunk is None or self._over:
            return
        request_id = self._request.request_id
        told = began(request_id, event, self._drawn_at - self._asked_at)
        self._desk.tell(StepTokens((chunk,), (told,)))
        self._over = True
        self._desk.end(request_id)

    def _failed(self, failure: LegFailed) -> None:
        self._stop_timer()
        if failure.code in REFUSALS and not self._opened:
            self._release(self._returned)  # vLLM's generate endpoint does not do it by itself
        if self._over:
            return
        self._over = True
        if not self._decoding and failure.code == "engine" and not failure.unreachable:
            failure = LegFailed("transfer_failed", failure.reason)
        if failure.code == "transfer_failed":
            self._desk.around.exchange.unlink(self._writer, self._desk.around.worker)
        self._desk.fail(self._request.request_id, failure)

    def _late(self) -> None:
        """vLLM itself waits without a limit for KV that does not come."""
        self._desk.around.exchange.note("kv_late")
        if self._task is not None:
            self._task.cancel()
        reason = f"no token of decode within {self._patience_s:.0f} s"
        self._failed(LegFailed("transfer_failed", reason))

    def _release(self, returned: Params | None) -> None:
        prefill = None if self._prefill is None else self._prefill.instance
        params = None if returned is None else self._dialect.release(returned, prefill)
        if params is not None:
            asked = bodies.release(self._request, self._handoff, params)
            self._desk.spawn(self._request.request_id, self._let_go(asked))

    async def _let_go(self, asked: bodies.Asked) -> None:
        try:
            await self._desk.whole(self._request, asked)
        except LegFailed:
            return  # prefill's lease does it, later
        self._desk.around.exchange.note("released")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _new_reader(self, index: int) -> AnswerReader:
        return AnswerReader(self._request.request_id, index, self._request.sampling.logprobs)


def _without_first(chunk: TokenChunk) -> TokenChunk | None:
    """What is left after the first token; that may be the end of the answer alone."""
    first, rest = split_first(chunk)
    if rest is not None or first.finish_reason is None:
        return rest
    return TokenChunk(chunk.request_id, 1, (), first.finish_reason, first.stop_reason)
