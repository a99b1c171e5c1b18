"""What is known of one request after it ended; one JSON line each."""

from enum import StrEnum

import msgspec

from splitserve.errors import ConfigError


class Outcome(StrEnum):
    """How a request ended; exactly one of these. The rules are in ``wire.answer.outcome_of``."""

    OK = "ok"
    NO_USAGE = "complete_no_usage"
    COUNT_MISMATCH = "count_mismatch"
    SHORT = "short"
    TRUNCATED = "truncated"
    BAD_STREAM = "bad_stream"
    INBAND_ERROR = "inband_error"
    HTTP_ERROR = "http_error"
    CONNECT_ERROR = "connect_error"
    TIMEOUT_FIRST = "timeout_first"
    TIMEOUT_GAP = "timeout_gap"
    TIMEOUT_TOTAL = "timeout_total"
    NEVER_SENT = "never_sent"


class Counting(StrEnum):
    """Where the number of tokens of an event came from.

    EVENTS is a guess (every event with text is one token): gaps are then gaps between chunks.
    """

    IDS = "ids"
    USAGE = "usage"
    EVENTS = "events"


class RequestRecord(msgspec.Struct, kw_only=True, tag_field="schema", tag="request/1"):
    """One request as the client saw it.

    All times are seconds of one monotonic clock from the start of the run. ``intended_s`` is when
    the request was due, ``sent_s`` when its first byte was written (None: it never was),
    ``first_byte_s`` when the first byte of the answer came. ``events`` are (arrival, new tokens) of
    every event of the stream in order, also of those without tokens: comments, role, usage, end.
    ``answer_s`` is the first event with text that is no reasoning. ``digest`` names the answer:
    equal answers have equal digests. ``metrics`` is what the server said of its own times, in
    milliseconds where the name says so; ``workers`` who it said served the request, by part.
    """

    request_id: str
    arm: str
    run: str
    intended_s: float
    sent_s: float | None
    first_byte_s: float | None
    events: list[tuple[float, int]]
    ended_s: float
    outcome: Outcome
    counting: Counting
    status: int | None = None
    error: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    answer_s: float | None = None
    digest: str = ""
    served_id: str = ""
    metrics: dict[str, float] | None = None
    workers: dict[str, str] | None = None
    max_tokens: int = 0
    session: str | None = None
    turn: int = 0
    warmup: bool = False
    reused_connection: bool = False

    @property
    def lag_s(self) -> float | None:
        """How late the client was; None when nothing was sent."""
        return None if self.sent_s is None else self.sent_s - self.intended_s


def to_line(record: RequestRecord) -> bytes:
    """One JSON line, with its newline."""
    return msgspec.json.encode(record) + b"\n"


def from_line(line: bytes) -> RequestRecord:
    """Raises ConfigError when ``line`` is no request record of this schema."""
    try:
        return msgspec.json.decode(line, type=RequestRecord)
    except msgspec.DecodeError as error:
        raise ConfigError(f"this line is no request record: {error}") from error
