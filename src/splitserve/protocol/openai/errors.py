"""OpenAI's error form: ``{"error": {"message", "type", "param", "code"}}``."""

from typing import Final

import msgspec

INVALID_REQUEST: Final = "invalid_request_error"
RATE_LIMIT: Final = "rate_limit_error"
SERVER_ERROR: Final = "server_error"


class ErrorDetail(msgspec.Struct, frozen=True):
    """``param`` names the offending field; ``code`` is a short machine-readable word."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The whole body of an error answer, and the payload of an error event in a stream."""

    error: ErrorDetail

    def encode(self) -> bytes:
        return msgspec.json.encode(self)
