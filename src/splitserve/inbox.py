"""What other threads hand to one thread, which may wait for it for a while.

In place of ``queue.SimpleQueue``, whose ``get`` with a short timeout may wait for ever: when the
time is over by the time that it looks at the clock again, it takes the negative rest for no limit
(CPython 3.11; seen after some thousands of waits of a few microseconds).
"""

import threading
from collections import deque
from contextlib import suppress
from queue import Empty
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """One thread takes, any may put."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._news = threading.Lock()
        self._news.acquire()

    def put(self, item: T) -> None:
        """May be called from any thread, also while Python collects garbage."""
        self._items.append(item)
        with suppress(RuntimeError):  # said already
            self._news.release()

    def get(self, timeout_s: float | None = None) -> T:
        """The oldest item; waits for one for ``timeout_s``, now and then less, or without end.
        Raises Empty."""
        limit = -1.0 if timeout_s is None else max(0.0, timeout_s)  # -1 is without end
        while not self._items:
            self._news.acquire(timeout=limit)
            if timeout_s is not None:
                break
        return self.get_nowait()

    def get_nowait(self) -> T:
        """Raises Empty."""
        self._news.acquire(blocking=False)
        try:
            return self._items.popleft()
        except IndexError:
            raise Empty from None
