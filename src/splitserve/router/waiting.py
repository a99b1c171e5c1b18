"""Requests that no worker has room for now, in order of arrival."""

from bisect import insort
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class WaitingLine(Generic[T]):
    """First come, first served; one that was refused by a worker gets its old place back."""

    def __init__(self, arrival: Callable[[T], int]) -> None:
        self._arrival = arrival
        self._line: list[T] = []

    def __len__(self) -> int:
        return len(self._line)

    def join(self, item: T) -> None:
        insort(self._line, item, key=self._arrival)

    def first(self) -> T | None:
        return self._line[0] if self._line else None

    def leave(self, item: T) -> None:
        """Unknown items are ignored."""
        if item in self._line:
            self._line.remove(item)
