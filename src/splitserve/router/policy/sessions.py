"""Where the last request of a session went. Pure.

A session is what the client says belongs together. It may be wrong or mean no harm: nothing but a
preference among workers that would do anyway comes of it.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from splitserve.ids import WorkerId
from splitserve.router.policy.base import NO_TURN, LastTurn

MAX_SESSIONS: Final = 1 << 14
TTL_S: Final = 1800.0
"""After so long without a request its KV has made room for others."""


@dataclass(frozen=True, slots=True)
class _Noted:
    turn: LastTurn
    at: float


class Sessions:
    """At most ``max_sessions``, of which those used longest ago go first; none for longer than
    ``ttl_s`` after its last use. The empty name is nobody's."""

    def __init__(self, max_sessions: int = MAX_SESSIONS, ttl_s: float = TTL_S) -> None:
        self._max_sessions = max_sessions
        self._ttl_s = ttl_s
        self._noted: OrderedDict[str, _Noted] = OrderedDict()

    def __len__(self) -> int:
        return len(self._noted)

    def last(self, session: str, now: float) -> LastTurn:
        """The workers of its last request; NO_TURN where nobody knows."""
        noted = self._noted.get(session)
        if noted is None or now - noted.at > self._ttl_s:
            return NO_TURN
        return noted.turn

    def note(self, session: str, turn: LastTurn, now: float) -> None:
        """A request of the session was answered by these."""
        if not session:
            return
        self._noted[session] = _Noted(turn, now)
        self._noted.move_to_end(session)
        while self._noted and self._must_go(next(iter(self._noted.values())), now):
            self._noted.popitem(last=False)

    def forget(self, worker: WorkerId) -> None:
        """It was lost, and with it what it held."""
        for session, noted in list(self._noted.items()):
            if worker in (noted.turn.decode, noted.turn.prefill):
                del self._noted[session]

    def _must_go(self, oldest: _Noted, now: float) -> bool:
        return len(self._noted) > self._max_sessions or now - oldest.at > self._ttl_s
