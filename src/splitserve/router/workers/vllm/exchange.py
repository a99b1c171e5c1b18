"""Where the two halves of a handoff between vLLM instances meet, inside one gateway.

vLLM instances do not tell each other what the gateway has to: the prefill leg's answer holds what
the decode leg needs. One Exchange serves all vLLM clients of a gateway; on one event loop.
"""

from collections.abc import Callable
from typing import Final, Protocol

from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.generate import GenerateRequest, TokenChunk
from splitserve.router.workers.vllm.answers import Event
from splitserve.router.workers.vllm.bodies import Asked
from splitserve.router.workers.vllm.dialects.base import Instance, Params
from splitserve.router.workers.vllm.kept_turns import KeptTurns

WORDS: Final = (
    "first_token_at_once",
    "first_token_waits",
    "first_token_differs",
    "params_unusable",
    "kv_late",
    "released",
    "turn_kept",
    "turn_continued",
)
"""What ``note`` may be told. ``at_once`` and ``waits``: where the client's first token came from,
prefill or decode. ``differs``: decode drew another one, and the answer was replayed.
``params_unusable``: prefill returned nothing that decode could use. ``kv_late``: decode said
nothing in time. ``released``: prefill's blocks were let go without decode. ``turn_kept``: decode
keeps a finished turn for the next one. ``turn_continued``: prefill was told to read one."""


class PrefillSide(Protocol):
    """The prefill leg, as decode sees it."""

    @property
    def instance(self) -> Instance: ...

    def taken_over(self, first: TokenChunk | None) -> None:
        """Decode has drawn its first token, so the KV is there. ``first`` holds it where the client
        has none yet; None where it has. Once."""
        ...


class DecodeSide(Protocol):
    """The decode leg, as prefill sees it."""

    @property
    def instance(self) -> Instance: ...

    def prefilling(self, prefill: PrefillSide) -> None:
        """Prefill is being asked now. Raises DialectError, as ``prefilled``."""
        ...

    def prefilled(self, spoken: int | None, returned: Params | None) -> None:
        """Prefill has answered; ``spoken`` is its first token, if the client has it already.

        Raises DialectError when ``returned`` cannot be used: nothing was sent to decode then.
        """
        ...

    def unneeded(self, returned: Params | None) -> None:
        """Prefill's first token was the whole answer."""
        ...


class Member(Protocol):
    """A client whose instance is there."""

    @property
    def worker(self) -> WorkerId: ...

    @property
    def role(self) -> str: ...

    @property
    def instance(self) -> Instance: ...

    @property
    def speaks(self) -> str:
        """What two instances must have in common to hand over: empty for none."""
        ...

    def company_changed(self) -> None:
        """It may be linked to others than before."""
        ...

    async def whole(self, request: GenerateRequest, asked: Asked) -> Event:
        """One request to the instance that is not the router's. Raises LegFailed."""
        ...

    async def failed_transfers(self) -> int:
        """How many the instance has counted by now. Raises LegFailed."""
        ...


class Exchange:
    """``note`` counts what happened (WORDS). ``turns`` are those that its members keep."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note
        self.turns = KeptTurns()
        self._offers: dict[HandoffId, DecodeSide] = {}
        self._members: dict[WorkerId, Member] = {}
        self._links: set[tuple[WorkerId, WorkerId]] = set()

    @property
    def empty(self) -> bool:
        """No handoff waits for its prefill leg."""
        return not self._offers

    def offer(self, handoff: HandoffId, side: DecodeSide) -> None:
        """Decode has taken the request and waits for prefill."""
        self._offers[handoff] = side

    def take(self, handoff: HandoffId) -> DecodeSide | None:
        """For prefill, once; None when decode has given up meanwhile."""
        return self._offers.pop(handoff, None)

    def withdraw(self, handoff: HandoffId) -> None:
        """Decode gives up; without effect when prefill was faster."""
        self._offers.pop(handoff, None)

    def join(self, member: Member) -> None:
        self._members[member.worker] = member

    def leave(self, member: Member) -> None:
        """Its links go with it, and the turns that it kept."""
        if self._members.pop(member.worker, None) is not None:
            self.turns.forget(member.worker)
            for link in [link for link in self._links if member.worker in link]:
                self.unlink(*link)

    def member(self, worker: WorkerId) -> Member | None:
        """None while its instance is not there."""
        return self._members.get(worker)

    def link(self, prefill: WorkerId, decode: WorkerId) -> None:
        """A handoff between the two has worked."""
        if prefill in self._members and decode in self._members:
            self._links.add((prefill, decode))
            self._members[decode].company_changed()

    def unlink(self, prefill: WorkerId, decode: WorkerId) -> None:
        """One has failed, or they are not there any more."""
        if (prefill, decode) in self._links:
            self._links.remove((prefill, decode))
            if decode in self._members:
                self._members[decode].company_changed()

    def writers(self, decode: WorkerId) -> tuple[WorkerId, ...]:
        """The workers that may hand over to that one."""
        return tuple(sorted(p for p, d in self._links if d == decode))
