"""Time, injected wherever a decision depends on it so that tests can set it.

All times are seconds of one process's monotonic clock. They never cross a process border:
intervals do.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds; the zero point means nothing."""

    def __call__(self) -> float: ...


monotonic: Clock = time.monotonic
