"""A whole request in one place: prompt and answer."""

from splitserve.engine.api import Engine
from splitserve.errors import CallerError
from splitserve.ids import RequestId
from splitserve.protocol.control import Failed, Submit
from splitserve.roles.owners import Owners
from splitserve.roles.port import ConnId, Port
from splitserve.roles.refusal import refusal_code


class Colocated:
    """Also serves as the last rung of the failure ladder on any worker."""

    def __init__(self, engine: Engine, port: Port, owners: Owners) -> None:
        self._engine = engine
        self._port = port
        self._owners = owners

    def submit(self, conn: ConnId, message: Submit, waited_s: float) -> None:
        request = message.request
        if request.request_id in self._owners:
            self._port.send(
                conn, Failed(request.request_id, "duplicate", "the request id is in use here")
            )
            return
        try:
            self._engine.add(request, emitted=message.emitted)
        except CallerError as error:
            code = refusal_code(error)
            self._port.send(conn, Failed(request.request_id, code, error.message, error.param))
            return
        self._owners.add(request.request_id, conn, "colocated", waited_s)

    def abort(self, request_id: RequestId) -> None:
        self._engine.abort(request_id)
        self._owners.drop(request_id)
