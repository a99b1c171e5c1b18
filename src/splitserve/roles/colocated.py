"""A whole request in one place: prompt and answer."""

from collections.abc import Callable

from splitserve.clock import Clock
from splitserve.engine.api import Engine
from splitserve.errors import CallerError
from splitserve.ids import RequestId
from splitserve.protocol.control import Failed, Submit
from splitserve.roles.owners import Owners
from splitserve.roles.port import ConnId, Port
from splitserve.roles.refusal import refusal_code
from splitserve.roles.tiering import Tiering


class Colocated:
    """Also serves as the last rung of the failure ladder on any worker."""

    def __init__(
        self,
        engine: Engine,
        port: Port,
        owners: Owners,
        clock: Clock,
        tiering: Tiering | None = None,
    ) -> None:
        self._engine = engine
        self._port = port
        self._owners = owners
        self._clock = clock
        self._tiering = tiering

    def submit(self, conn: ConnId, message: Submit, waited_s: float) -> None:
        request_id = message.request.request_id
        if request_id in self._owners:
            self._port.send(conn, Failed(request_id, "duplicate", "the request id is in use here"))
            return
        self._owners.add(request_id, conn, "colocated", waited_s)
        self._or_fail(conn, request_id, lambda: self._enter(conn, message, waited_s))

    def _enter(self, conn: ConnId, message: Submit, waited_s: float) -> None:
        """The request is queued, once the tier has brought what it has of its prompt. May raise
        CallerError where ``Engine.add`` would."""
        request, accepted = message.request, self._clock()

        def add() -> None:
            self._engine.add(request, emitted=message.emitted)

        def late() -> None:
            waited = waited_s + self._clock() - accepted
            self._owners.add(request.request_id, conn, "colocated", waited)
            self._or_fail(conn, request.request_id, add)

        # An answer that goes on here was interrupted elsewhere: its client has waited enough.
        tiering = None if message.emitted else self._tiering
        if tiering is None or not tiering.wait_for(request, late):
            add()

    def _or_fail(self, conn: ConnId, request_id: RequestId, step: Callable[[], None]) -> None:
        try:
            step()
        except CallerError as error:
            self._owners.drop(request_id)
            code = refusal_code(error)
            self._port.send(conn, Failed(request_id, code, error.message, error.param))

    def abort(self, request_id: RequestId) -> None:
        if self._tiering is not None:
            self._tiering.abort(request_id)
        self._engine.abort(request_id)
        self._owners.drop(request_id)
