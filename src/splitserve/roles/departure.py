"""How a worker leaves: takes nothing new, lets what runs end, hands the rest over, goes. Pure."""

from typing import Final

LINGER_S: Final = 0.1
"""How long a worker with nothing to do stays after it said that it leaves: what was sent to it
meanwhile is refused in words, which costs less than a lost connection."""


class Departure:
    """Times in seconds of one clock."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._hand_over_at = 0.0

    @property
    def begun(self) -> bool:
        return self._began is not None

    def begin(self, now: float, grace_s: float) -> None:
        """Asked again, the shorter grace holds."""
        until = now + grace_s
        if self._began is None:
            self._began, self._hand_over_at = now, until
        self._hand_over_at = min(self._hand_over_at, until)

    def grace_is_over(self, now: float) -> bool:
        """What still runs has to go on elsewhere."""
        return self.begun and now >= self._hand_over_at

    def over(self, now: float, owing: bool) -> bool:
        """The worker may go. ``owing``: something still runs or is being written."""
        return self._began is not None and not owing and now - self._began >= LINGER_S
