"""Whether a worker that has work gets anywhere. Pure."""

from typing import Final

from splitserve.protocol.telemetry import Load

_RESPONSIVE_S: Final = 1.0
"""An engine's thread that turned its loop within this time is awake."""


class Progress:
    """``now`` and ``turned`` in seconds of one clock."""

    def __init__(self, now: float) -> None:
        self._steps = 0
        self._well_at = now

    def since_step_s(self, load: Load, turned: float, now: float) -> float:
        """Since when there has been work and no step: 0 while all is well.

        ``turned`` is when the engine's thread last began a round: one that hangs in a call reports
        nothing new, not even that there is work.
        """
        idle = load.running + load.waiting == 0
        if load.steps != self._steps or (idle and now - turned < _RESPONSIVE_S):
            self._steps, self._well_at = load.steps, now
        return round(now - self._well_at, 1)
