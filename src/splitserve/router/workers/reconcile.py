"""Compares what this gateway and a worker believe to be open there. Pure.

Both sides speak in order: Holding reflects all that the gateway sent before Inventory, and comes
after all that the worker said before it. So whatever differs is a stray, and no news on its way.
"""

from collections.abc import Collection, Set
from dataclasses import dataclass
from typing import Final

from splitserve.ids import RequestId

RECONCILE_EVERY_S: Final = 2.0

FORGOTTEN: Final = "forgotten"
"""The code of a request that a worker should hold and does not know."""


@dataclass(frozen=True, slots=True)
class Strays:
    """``at_worker``: it works on them for nobody. ``at_gateway``: nobody works on them."""

    at_worker: frozenset[RequestId]
    at_gateway: frozenset[RequestId]


def strays(
    asked: Collection[RequestId], now: Set[RequestId], held: Collection[RequestId]
) -> Strays:
    """``asked`` was open here when Inventory left, ``now`` is when Holding came; ``held`` is what
    it says. What ended here in between is no stray: the worker is about to be told."""
    held_there, then = frozenset(held), frozenset(asked)
    return Strays(
        at_worker=held_there - then - now,
        at_gateway=(then & now) - held_there,
    )


class Questions:
    """Inventories sent to one worker. At most one is open: another would say the same."""

    def __init__(self) -> None:
        self._serial = 0
        self._asked: frozenset[RequestId] | None = None
        self._last = 0.0

    def due(self, now: float) -> bool:
        return self._asked is None and now - self._last >= RECONCILE_EVERY_S

    def ask(self, opened: Collection[RequestId], now: float) -> int:
        """The serial to send."""
        self._serial += 1
        self._asked, self._last = frozenset(opened), now
        return self._serial

    def answered(self, serial: int) -> frozenset[RequestId] | None:
        """What was open when that question left; None when it is not the open one."""
        if serial != self._serial:
            return None
        asked, self._asked = self._asked, None
        return asked
