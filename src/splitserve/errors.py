"""The exception tree. Each error says whose fault it is and whether a retry can help.

    SplitserveError
      CallerError        the request is wrong; HTTP 4xx; never retried
      OverloadError      no room now; HTTP 429 or 503 with Retry-After
      PeerError          another process failed; the router may retry elsewhere
        WorkerLost         its socket closed or it fell silent
        TransferFailed     KV did not arrive whole
        ProtocolMismatch   it speaks another version or serves another model
      ConfigError        a setting is wrong; the process exits with code 2
      UnavailableError   something outside is missing (network, disk, package); exit code 3
      BugError           an invariant of ours broke

Foreign exceptions are translated in the file that imports the foreign library.
"""


class SplitserveError(Exception):
    """Base of everything Splitserve raises on purpose."""


class CallerError(SplitserveError):
    """The client's request cannot be served as it is.

    ``param`` names the offending field as OpenAI's error form does; ``status`` is the HTTP status;
    ``code`` is OpenAI's short machine-readable word.
    """

    def __init__(
        self, message: str, *, param: str | None = None, status: int = 400, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
        self.code = code


class OverloadError(SplitserveError):
    """There is no room. ``status`` is 429 (come back) or 503 (nobody can serve this now)."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0, status: int = 429) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.status = status


class PeerError(SplitserveError):
    """Another process let us down."""


class WorkerLost(PeerError):
    """The worker's socket closed, or it sent no Load for the liveness limit."""


class TransferFailed(PeerError):
    """KV did not arrive whole and in time."""


class ProtocolMismatch(PeerError):
    """The peer speaks another protocol version, or its fingerprint differs where it must not."""


class ConfigError(SplitserveError):
    """A setting is wrong. The message names the setting and the cure."""


class UnavailableError(SplitserveError):
    """Something outside this program is missing: network, disk space, a package."""


class BugError(SplitserveError):
    """An invariant of Splitserve's own broke."""
