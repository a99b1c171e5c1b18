"""What a worker is for at the moment, how it changes, and what becomes of the old work. Pure."""

from collections.abc import Mapping
from typing import Final

from splitserve.ids import RequestId
from splitserve.roles.owners import RoleName

ROLE_EVERY_S: Final = 10.0
"""Least time between two changes: a role that follows every breath of the load does no work."""

WORK_OF: Final[Mapping[str, frozenset[RoleName]]] = {
    "colocated": frozenset({"colocated"}),
    "prefill": frozenset({"prefill"}),
    "decode": frozenset({"decode", "colocated"}),
}
"""By role, the work that is its own. Whole requests at a decode worker are the ladder's last rung.
"""


class RoleBook:
    """Times in seconds of one clock."""

    def __init__(self, role: str) -> None:
        self.role = role
        self._changed: float | None = None
        self._old_work: frozenset[RequestId] = frozenset()
        self._old_until = 0.0

    def change(
        self, role: str, now: float, grace_s: float, running: Mapping[RequestId, RoleName]
    ) -> str:
        """Takes ``role`` on, or says why not. ``running`` is the work at hand: what of it is not
        the new role's own is overdue after ``grace_s``."""
        if role not in WORK_OF:
            return f"there is no role {role!r}; there are {', '.join(WORK_OF)}"
        if role == self.role:
            return ""
        if self._changed is not None and now - self._changed < ROLE_EVERY_S:
            return (
                f"the role changed {now - self._changed:.0f} s ago; "
                f"it stays for at least {ROLE_EVERY_S:.0f} s"
            )
        self.role, self._changed = role, now
        self._old_until = now + grace_s
        self._old_work = frozenset(r for r, kind in running.items() if kind not in WORK_OF[role])
        return ""

    def take_overdue(self, now: float) -> frozenset[RequestId]:
        """Old work whose grace is over, once; it may have ended since."""
        if not self._old_work or now < self._old_until:
            return frozenset()
        overdue, self._old_work = self._old_work, frozenset()
        return overdue
