"""Which connection waits for which request: one table, so that no token goes astray."""

from dataclasses import dataclass
from typing import Literal

from splitserve.ids import RequestId
from splitserve.roles.port import ConnId

RoleName = Literal["colocated", "prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Owner:
    """``waited_s``: how long the request lay in front of this worker's engine, unread."""

    conn: ConnId
    role: RoleName
    waited_s: float = 0.0


class Owners:
    """Requests this worker answers for, from acceptance to their last token, abort or failure."""

    def __init__(self) -> None:
        self._by_request: dict[RequestId, Owner] = {}

    def __len__(self) -> int:
        return len(self._by_request)

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._by_request

    def add(
        self, request_id: RequestId, conn: ConnId, role: RoleName, waited_s: float = 0.0
    ) -> None:
        self._by_request[request_id] = Owner(conn, role, waited_s)

    def get(self, request_id: RequestId) -> Owner | None:
        return self._by_request.get(request_id)

    def drop(self, request_id: RequestId) -> Owner | None:
        return self._by_request.pop(request_id, None)

    def kinds(self) -> dict[RequestId, RoleName]:
        """What is done here for every request."""
        return {request: owner.role for request, owner in self._by_request.items()}

    def of(self, conn: ConnId) -> list[RequestId]:
        """All requests a connection waits for."""
        return [request for request, owner in self._by_request.items() if owner.conn == conn]
