"""Restarts workers one after another, so that at any time all the others serve.

A worker that is ready is not yet one that is used: gateways have to find it again and prefill
workers to link to it. The next one's turn comes when that is so. Native workers are asked
themselves; of vLLM instances the gateway tells.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from splitserve.clock import Clock
from splitserve.errors import UnavailableError
from splitserve.launch.keep import Keeper, State
from splitserve.launch.talk import talk
from splitserve.protocol.telemetry import Load

RESTORE_S: Final = 20.0
"""How long gateways and links may take to come back to a worker that is ready again."""

_POLL_S: Final = 0.1
_FOREIGN: Final = "vllm+"

Standing = Mapping[str, Load]
"""By worker's name, for those that answer."""


async def roll(
    workers: Sequence[Keeper],
    say: Callable[[str], None],
    clock: Clock,
    found_again: Callable[[str], Awaitable[bool]],
) -> None:
    """``say`` takes a line of progress; ``found_again`` tells whether the gateway uses the worker
    of that name. Raises UnavailableError when a worker does not come back:
    those whose turn has not come run on as they are."""
    for number, worker in enumerate(workers, 1):
        name = worker.status.spec.name
        say(f"restarting {name} ({number} of {len(workers)})")
        before = await _standing(workers)
        await worker.renew()
        if worker.status.spec.address.startswith(_FOREIGN):
            await _used(name, clock, found_again)
        else:
            await _restored(workers, before, name, clock)
    say(f"restarted {len(workers)} workers")


async def _used(name: str, clock: Clock, found_again: Callable[[str], Awaitable[bool]]) -> None:
    deadline = clock() + RESTORE_S
    # The gateway's state: nothing here could be waited for.
    while not await found_again(name):
        if clock() > deadline:
            raise UnavailableError(f"{name} is ready again, but the gateway does not use it")
        await asyncio.sleep(_POLL_S)


async def _restored(workers: Sequence[Keeper], before: Standing, name: str, clock: Clock) -> None:
    deadline = clock() + RESTORE_S
    # Other processes' states: nothing here could be waited for.
    while missing := what_is_missing(before, await _standing(workers)):
        if clock() > deadline:
            raise UnavailableError(f"{name} is ready again, but {missing}")
        await asyncio.sleep(_POLL_S)


async def _standing(workers: Sequence[Keeper]) -> Standing:
    asked = [
        worker.status.spec
        for worker in workers
        if worker.status.state is State.READY
        and worker.status.spec.address
        and not worker.status.spec.address.startswith(_FOREIGN)
    ]
    answers = await asyncio.gather(*(talk(spec.address) for spec in asked), return_exceptions=True)
    found: dict[str, Load] = {}
    for spec, answer in zip(asked, answers, strict=True):
        if isinstance(answer, UnavailableError):
            continue
        if isinstance(answer, BaseException):
            raise answer
        found[spec.name] = answer.load
    return found


def what_is_missing(before: Standing, after: Standing) -> str:
    """What there was before and is not yet there again; empty when all is."""
    for name, load in before.items():
        now = after.get(name)
        if now is None:
            return f"{name} does not answer"
        if now.gateways < load.gateways:
            return f"{load.gateways - now.gateways} gateways have not found {name} again"
        gone = set(load.linked) - set(now.linked)
        if gone:
            return f"{', '.join(sorted(gone))} is not linked to {name}"
    return ""
