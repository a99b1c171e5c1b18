"""Tries a pair of instances out before requests depend on it.

Instances connect when a request first names the other, which takes a second or more, or fails for
good: other versions, a side channel that nobody reaches. So a pair hands over a few made-up tokens
first; it is linked when that works, and until then decode computes its prompts itself. A handoff
that fails later unlinks the pair, and the router asks for the link again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from splitserve.clock import Clock
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams
from splitserve.router.workers.vllm import bodies
from splitserve.router.workers.vllm.answers import Event
from splitserve.router.workers.vllm.dialects.base import Dialect, DialectError
from splitserve.router.workers.vllm.exchange import Exchange, Member
from splitserve.router.workers.vllm.failure import LegFailed

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 15.0
"""vLLM waits without a limit for a peer that says nothing."""

PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 60.0
"""First and longest pause after an attempt that failed: each may cost decode a block."""

TryOut = Callable[[Dialect, Member, Member], Awaitable[None]]
"""Returns once a handoff from the first instance to the second is known to work. Raises LegFailed
or DialectError when it does not."""

PREFIX: Final = "handshake"
_PROMPT: Final = tuple(range(1, 9))
"""Ids that every vocabulary has; too few to fill a block, so that no prefix cache keeps them."""

_SERIAL: Final = count()


@dataclass(slots=True)
class _Attempts:
    """``due`` is the time before which it is not tried again."""

    task: asyncio.Task[None] | None = None
    due: float = 0.0
    pause_s: float = PAUSE_S


class Handshakes:
    """Those of one prefill instance, for as long as it is connected."""

    def __init__(
        self,
        prefill: Member,
        dialect: Dialect,
        exchange: Exchange,
        try_out: TryOut,
        clock: Clock,
    ) -> None:
        self._prefill = prefill
        self._try_out = try_out
        self._dialect = dialect
        self._exchange = exchange
        self._clock = clock
        self._attempts: dict[WorkerId, _Attempts] = {}

    def ask(self, worker: WorkerId) -> None:
        """Links to the decode worker of that name, unless an attempt is under way or has just
        failed."""
        decode = self._exchange.member(worker)
        attempts = self._attempts.setdefault(worker, _Attempts())
        busy = attempts.task is not None and not attempts.task.done()
        if decode is None or decode.speaks != self._prefill.speaks or busy:
            return
        if self._clock() >= attempts.due:
            attempt = self._attempt(decode, attempts)
            attempts.task = asyncio.get_running_loop().create_task(attempt)

    def stop(self) -> list["asyncio.Task[None]"]:
        """Cancels what is under way; gives it, to be waited for."""
        tasks = [each.task for each in self._attempts.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    async def _attempt(self, decode: Member, attempts: _Attempts) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._try_out(self._dialect, self._prefill, decode)
        except (LegFailed, DialectError, TimeoutError) as error:
            attempts.due = self._clock() + attempts.pause_s
            attempts.pause_s = min(attempts.pause_s * 2, MAX_PAUSE_S)
            reason = str(error) or f"no answer within {TIMEOUT_S:.0f} s"
            names = self._prefill.worker, decode.worker
            log.warning("%s cannot hand over to %s: %s", *names, reason)
        else:
            attempts.pause_s = PAUSE_S
            self._exchange.link(self._prefill.worker, decode.worker)


async def trusted(dialect: Dialect, prefill: Member, decode: Member) -> None:
    """A TryOut that takes the deployment's word: the first request makes the connection."""
    del dialect, prefill, decode


async def shake_hands(dialect: Dialect, prefill: Member, decode: Member) -> None:
    """A TryOut that hands over made-up tokens; at once content where the instances have nothing to
    say to each other."""
    handoff = HandoffId(f"{PREFIX}-{prefill.worker}-{decode.worker}-{next(_SERIAL)}")
    sampling = SamplingParams(seed=0, max_tokens=1, temperature=0.0, ignore_eos=True)
    request = GenerateRequest(RequestId(handoff), _PROMPT, sampling)
    leg = dialect.prefill(handoff, prefill.instance, decode.instance)
    if leg.params is None:
        return
    prefilling = bodies.prefill(request, handoff, leg)
    returned = None
    if not dialect.concurrent:
        returned = (await prefill.whole(request, prefilling)).kv_transfer_params
    failures = await decode.failed_transfers()
    taken = dialect.decode(handoff, prefill.instance, decode.instance, returned)
    decoding = replace(bodies.decode(request, handoff, taken), stream=False)
    if dialect.concurrent:
        await _both(prefill.whole(request, prefilling), decode.whole(request, decoding))
    else:
        await decode.whole(request, decoding)
    # Told to recompute what it cannot load, decode answers all the same.
    if await decode.failed_transfers() > failures:
        raise LegFailed("transfer_failed", "decode could not load the KV, and computed it instead")


async def _both(*legs: Coroutine[Any, Any, Event]) -> None:
    """The first failure ends the other leg too."""
    tasks = [asyncio.ensure_future(leg) for leg in legs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
