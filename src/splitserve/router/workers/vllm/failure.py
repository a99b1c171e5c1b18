"""What goes wrong with one HTTP request to vLLM, in the failure ladder's words."""

from typing import Final

import msgspec

from splitserve.errors import PeerError


class LegFailed(PeerError):
    """``code``, ``reason`` and ``param`` as in Failed. ``unreachable``: vLLM did not answer to
    the end. ``refused``: nobody listens there."""

    def __init__(
        self,
        code: str,
        reason: str,
        *,
        param: str | None = None,
        unreachable: bool = False,
        refused: bool = False,
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.param = param
        self.unreachable = unreachable
        self.refused = refused


CODES: Final = {400: "invalid", 413: "too_long", 422: "invalid", 429: "no_blocks"}
"""By HTTP status; all others mean that vLLM failed."""

REFUSALS: Final = frozenset(CODES.values())
"""vLLM did not take the request in."""

_MAX_REASON: Final = 500


class ErrorBody(msgspec.Struct, frozen=True):
    """vLLM's error object, the same in a body and in the middle of a stream."""

    message: str = ""
    param: str | None = None
    code: int | str | None = None


class _Envelope(msgspec.Struct, frozen=True):
    error: ErrorBody | str | None = None
    message: str = ""
    detail: msgspec.Raw = msgspec.Raw(b"null")


def refused(status: int, body: bytes) -> LegFailed:
    """Reads the answer to a request that vLLM did not take."""
    code = CODES.get(status, "engine")
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except msgspec.DecodeError:
        return LegFailed(code, f"HTTP {status}")
    error = envelope.error
    if isinstance(error, ErrorBody):
        return LegFailed(code, error.message[:_MAX_REASON], param=error.param)
    reason = error or envelope.message or bytes(envelope.detail).decode(errors="replace")
    return LegFailed(code, reason[:_MAX_REASON])


def broken(error: ErrorBody) -> LegFailed:
    """An error that came after the answer had begun."""
    status = str(error.code)
    code = CODES.get(int(status), "engine") if status.isdigit() else "engine"
    return LegFailed(code, error.message[:_MAX_REASON], param=error.param)
