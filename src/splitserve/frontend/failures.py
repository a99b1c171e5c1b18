"""Errors as the client sees them. One table from our exceptions to HTTP and OpenAI's error form."""

import math
from dataclasses import dataclass
from typing import Final

from splitserve.errors import (
    CallerError,
    OverloadError,
    PeerError,
    SplitserveError,
    WorkerLost,
)
from splitserve.frontend.measures import Outcome
from splitserve.protocol.openai.errors import (
    INVALID_REQUEST,
    RATE_LIMIT,
    SERVER_ERROR,
    ErrorBody,
    ErrorDetail,
)

Headers = list[tuple[bytes, bytes]]

_PEER_RETRY_AFTER_S: Final = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """``body`` is the error form; an event stream that has begun carries it as its last event."""

    status: int
    body: bytes
    outcome: Outcome
    retry_after_s: int | None = None

    @property
    def headers(self) -> Headers:
        if self.retry_after_s is None:
            return []
        return [(b"retry-after", str(self.retry_after_s).encode())]


def failure_of(error: Exception, request_id: str) -> Failure:
    """Says no more than the client may know: workers' names and addresses stay in the log."""
    match error:
        case CallerError():
            detail = ErrorDetail(error.message, INVALID_REQUEST, error.param, error.code)
            return Failure(error.status, ErrorBody(detail).encode(), "refused")
        case OverloadError():
            return _overload(error)
        case PeerError():
            return _peer(error, request_id)
        case _:
            message = f"internal error; the server's log has it under request {request_id}"
            return Failure(500, _server_error(message, "internal_error"), "error")


def http_failure(status: int, message: str, code: str) -> bytes:
    """The body for errors of the HTTP surface itself: unknown path, wrong method."""
    kind = INVALID_REQUEST if status < 500 else SERVER_ERROR
    return ErrorBody(ErrorDetail(message, kind, code=code)).encode()


def _overload(error: OverloadError) -> Failure:
    if error.status == 429:
        detail = ErrorDetail(error.message, RATE_LIMIT, code="overloaded")
    else:
        detail = ErrorDetail(error.message, SERVER_ERROR, code="unavailable")
    retry_after_s = max(1, math.ceil(error.retry_after_s))
    return Failure(error.status, ErrorBody(detail).encode(), "overload", retry_after_s)


def _peer(error: SplitserveError, request_id: str) -> Failure:
    # A lost worker is replaced or routed around at once, so trying again soon makes sense.
    if isinstance(error, WorkerLost):
        message = f"a worker was lost and request {request_id} could not be saved"
        body = _server_error(message, "worker_lost")
        return Failure(503, body, "peer_failed", _PEER_RETRY_AFTER_S)
    message = f"a worker failed and request {request_id} could not be saved"
    return Failure(502, _server_error(message, "worker_failed"), "peer_failed")


def _server_error(message: str, code: str) -> bytes:
    return ErrorBody(ErrorDetail(message, SERVER_ERROR, code=code)).encode()
