"""The engine's thread: takes messages in, runs steps, sends what came out.

All of a worker's state is touched by this thread alone. Sockets live in another (``server``), so
that leases and liveness do not depend on how long a step takes.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty
from typing import Final

from splitserve.clock import Clock
from splitserve.ids import HandoffId, WorkerId
from splitserve.inbox import Inbox
from splitserve.protocol.codec import Message, encode
from splitserve.protocol.telemetry import Load
from splitserve.roles.port import ConnId
from splitserve.roles.worker import Worker

log = logging.getLogger(__name__)

IDLE_WAIT_S: Final = 0.05
"""Longest sleep of an idle engine: how late a lease's end may be noticed."""

DEVICE_WAIT_S: Final = 0.0005
"""Sleep between looks at what goes on by itself: writes that are under way, and the step that a
device computes while the next is not due yet."""


@dataclass(frozen=True, slots=True)
class Received:
    """``at``: when it came, on the clock of the thread that takes it in."""

    conn: ConnId
    message: Message
    at: float


@dataclass(frozen=True, slots=True)
class LinkOpened:
    conn: ConnId


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    conn: ConnId


@dataclass(frozen=True, slots=True)
class DrainAsked:
    grace_s: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    pass


Incoming = Received | LinkOpened | ConnectionLost | DrainAsked | StopAsked


@dataclass(frozen=True, slots=True)
class Write:
    conn: ConnId
    frame: bytes


@dataclass(frozen=True, slots=True)
class OpenLink:
    worker: WorkerId
    address: str


@dataclass(frozen=True, slots=True)
class Close:
    conn: ConnId


Outgoing = Write | OpenLink | Close


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the socket thread may read of the worker at any time: replaced whole, never changed."""

    load: Load
    renewals: dict[ConnId, tuple[HandoffId, ...]]


class Outbox:
    """The worker's Port: collects one iteration's output, so that it leaves in one hand-over."""

    def __init__(self) -> None:
        self._items: list[Outgoing] = []

    def send(self, conn: ConnId, message: Message) -> None:
        self._items.append(Write(conn, encode(message)))

    def open_link(self, worker: WorkerId, address: str) -> None:
        self._items.append(OpenLink(worker, address))

    def close(self, conn: ConnId) -> None:
        self._items.append(Close(conn))

    @property
    def waiting(self) -> bool:
        return bool(self._items)

    def take(self) -> list[Outgoing]:
        items, self._items = self._items, []
        return items


class EngineThread:
    """Owns the thread. ``deliver`` is called from it after every iteration that changed something;
    ``ended`` once, with the exception that ended it or None. ``turned`` is when the last iteration
    began, for any thread to read."""

    def __init__(
        self,
        worker: Worker,
        outbox: Outbox,
        deliver: Callable[[list[Outgoing], Snapshot], None],
        ended: Callable[[BaseException | None], None],
        clock: Clock,
    ) -> None:
        self._worker = worker
        self._outbox = outbox
        self._deliver = deliver
        self._ended = ended
        self._clock = clock
        self._inbox: Inbox[Incoming] = Inbox()
        self._last: Snapshot | None = None
        self._stopping = False
        self.turned = clock()
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, item: Incoming) -> None:
        """From any thread."""
        self._inbox.put(item)

    def join(self, timeout_s: float) -> bool:
        """True when the thread has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _main(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - a worker whose engine broke must die loudly
            self._ended(error)
        else:
            self._ended(None)

    def _run(self) -> None:
        worker = self._worker
        while True:
            self.turned = self._clock()
            self._take_in()
            if self._stopping or worker.drained:
                self._hand_over()
                return
            worker.tick(self._clock())
            if self._outbox.waiting:
                # What is said by now must not wait for the step.
                self._hand_over()
            if worker.has_work() and not self._patience():
                worker.step()
            self._hand_over()

    def _hand_over(self) -> None:
        snapshot = Snapshot(self._worker.load(), self._worker.renewals())
        items = self._outbox.take()
        if items or snapshot != self._last:
            self._last = snapshot
            self._deliver(items, snapshot)

    def _take_in(self) -> None:
        """Everything that waits; blocks for a moment only when no step is to be run now."""
        try:
            item = self._inbox.get(self._patience())
            while True:
                self._dispatch(item)
                item = self._inbox.get_nowait()
        except Empty:
            return

    def _patience(self) -> float:
        """Seconds to wait for a message. The word that a prompt's KV is there must not wait for the
        end of another's step, and a step must not be fixed before it has to be."""
        worker = self._worker
        if worker.must_listen():
            return DEVICE_WAIT_S
        if worker.has_work():
            return min(worker.early_by(), DEVICE_WAIT_S)
        return DEVICE_WAIT_S if worker.transfers_pending() else IDLE_WAIT_S

    def _dispatch(self, item: Incoming) -> None:
        match item:
            case Received(conn, message, at):
                self._worker.handle(conn, message, self._clock() - at)
            case LinkOpened(conn):
                self._worker.link_opened(conn)
            case ConnectionLost(conn):
                self._worker.connection_lost(conn)
            case DrainAsked(grace_s):
                self._worker.drain(grace_s)
            case StopAsked():
                self._stopping = True
