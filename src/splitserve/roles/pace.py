"""When to launch the next step: late, so that what arrives while one runs can still join the next.

A device that always has a step ahead of it never waits, but who comes then joins the one after. So
the next step is launched a little before the running one ends, which is guessed from the steps
before it. Pure: times in, a time out.

A guess that is too long makes the device idle, and must not feed itself. Only a step whose
beginning and end were both seen is measured: it was launched before the one ahead of it ended, and
waiting for its own end took a while. A late launch breaks that, so it is never a measurement; it
ends all guessing until there are new ones, and those are taken of steps launched at once.
"""

from collections import deque
from typing import Final

from splitserve.engine.api import StepTimes

MARGIN_S: Final = 0.0007
"""How much earlier than needed a step is launched: what sleeping and waking up may be late."""

SHORTEST_S: Final = 0.002
"""Steps shorter than this are launched at once: there is too little to gain."""

LENGTHS: Final = 5
LEAST_LENGTHS: Final = 2
"""Of so many steps the shortest is the guess; with fewer than the least there is none."""

LAUNCHES: Final = 8
"""Of so many launches the longest is what the next one is expected to take."""


class Pace:
    def __init__(self) -> None:
        self._lengths: deque[float] = deque(maxlen=LENGTHS)
        self._launches: deque[float] = deque(maxlen=LAUNCHES)
        self._began: float | None = None
        self._even = False

    def stepped(self, times: StepTimes | None) -> None:
        """A step is over; ``times`` is what the engine says of it."""
        if times is not None:
            self._launches.append(times.launched - times.began)
        if times is None or not times.waited:
            self._lengths.clear()
            self._began = None
            return
        if self._began is not None and self._even:
            self._lengths.append(times.brought - self._began)
        self._began, self._even = times.brought, times.even

    def launch_at(self) -> float | None:
        """Until then the next launch may wait; None: nothing is known, it should not.

        It may lie in the past. Only what was known after the last step counts: whoever waits must
        look whether the device still computes.
        """
        if self._began is None or not self._even or len(self._lengths) < LEAST_LENGTHS:
            return None
        length = min(self._lengths)
        if length < SHORTEST_S:
            return None
        return self._began + length - max(self._launches) - MARGIN_S
