"""Whether another process of this host is dead: the proof that lets quarantined blocks go."""

import os
import select
from typing import Protocol


class ProcessWatch(Protocol):
    def dead(self) -> bool:
        """True once the process can run no instruction any more; never goes back."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...


class PidWatch:
    """Watches one life of a process through a pidfd (pidfd_open(2)): safe against reused ids."""

    def __init__(self, pid: int) -> None:
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1

    def dead(self) -> bool:
        if self._fd < 0:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if not poll.poll(0):
            return False
        self.close()
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
