"""The thread that uses the library, so that the engine's thread never posts, polls or waits."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from splitserve.errors import BugError
from splitserve.inbox import Inbox
from splitserve.transfer.posting.copies import Copies
from splitserve.transfer.posting.started import Agent, End

_SHORTEST_WAIT_S: Final = 0.0001
_LONGEST_WAIT_S: Final = 0.01
_WAIT_SHARE: Final = 0.1
"""Between two looks at what is open passes this share of the time since anything last moved: prompt
for what ends soon, cheap for what takes long."""

_Value = TypeVar("_Value")
_Task = Callable[[Copies], None]


class Driver:
    """Runs tasks on ``Copies`` one after another, and looks at what is open in between."""

    def __init__(
        self, connector: str, open_agent: Callable[[], Agent], enter: Callable[[], None]
    ) -> None:
        """``connector`` is what errors call it. ``enter`` prepares the thread (a GPU to be
        current). Raises what it and ``open_agent`` raise."""
        self._connector = connector
        self._tasks: Inbox[_Task | None] = Inbox()
        self._ends: SimpleQueue[End] = SimpleQueue()
        self._life: Future[None] = Future()
        opened: Future[Copies] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(open_agent, enter, opened), name=connector, daemon=True
        )
        self._thread.start()
        opened.result()

    def submit(self, task: _Task) -> None:
        """Runs ``task`` soon. May be called from any thread, also while Python collects garbage."""
        self._tasks.put(task)

    def ask(self, question: Callable[[Copies], _Value]) -> _Value:
        """What ``question`` gives or raises. Raises BugError when the thread has ended."""
        answer: Future[_Value] = Future()
        self.submit(lambda copies: _settle(answer, lambda: question(copies)))
        either: list[Future[Any]] = [answer, self._life]
        wait(either, return_when=FIRST_COMPLETED)
        if not answer.done():
            why = self._life.exception()
            raise BugError(f"the thread of connector {self._connector} has ended") from why
        return answer.result()

    def ends(self) -> list[End]:
        """Those that came since the last call. Never waits. Raises BugError when the thread broke,
        since no end would ever come."""
        taken: list[End] = []
        while not self._ends.empty():
            taken.append(self._ends.get())
        if not taken:
            self._check_alive()
        return taken

    def close(self) -> None:
        self._tasks.put(None)
        self._thread.join()

    def _check_alive(self) -> None:
        if self._life.done() and (error := self._life.exception()):
            raise BugError(f"the thread of connector {self._connector} broke") from error

    def _run(
        self, open_agent: Callable[[], Agent], enter: Callable[[], None], opened: "Future[Copies]"
    ) -> None:
        def begin() -> Copies:
            enter()
            return Copies(open_agent, self._ends.put)

        _settle(opened, begin)
        if opened.exception() is None:
            _settle(self._life, lambda: self._drive(opened.result()))

    def _drive(self, copies: Copies) -> None:
        moved_at = time.monotonic()
        while True:
            wait_s = None
            if copies.busy():
                since = time.monotonic() - moved_at
                wait_s = min(max(_WAIT_SHARE * since, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
            try:
                task = self._tasks.get(wait_s)
                if task is None:
                    copies.close()
                    return
                task(copies)
            except Empty:
                pass
            if copies.step():
                moved_at = time.monotonic()


def _settle(answer: "Future[_Value]", work: Callable[[], _Value]) -> None:
    try:
        answer.set_result(work())
    except Exception as error:  # noqa: BLE001 - raised again where the answer is asked for
        answer.set_exception(error)
