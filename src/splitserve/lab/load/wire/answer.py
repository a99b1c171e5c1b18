"""Folds the events of one stream into counts, and says how the request ended. No IO, no clock."""

import hashlib
from collections.abc import Mapping

import msgspec

from splitserve.lab.load.record import Counting, Outcome
from splitserve.lab.load.wire.chunk import Choice, Chunk, Usage, decode_chunk
from splitserve.lab.load.wire.sse import SseEvent


class Answer:
    """What one stream has said so far.

    Tokens of an event are counted by its token ids; without them by the growth of the running
    usage; without that every event with text is one token. ``error`` is the server's in-band error,
    ``broken`` says that an event could not be read.
    """

    def __init__(self) -> None:
        self.events: list[tuple[float, int]] = []
        self.counting = Counting.EVENTS
        self.tokens = 0
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.output_tokens: int | None = None
        self.finish_reason: str | None = None
        self.done = False
        self.error = ""
        self.broken = ""
        self.answer_s: float | None = None
        self.served_id = ""
        self.metrics: dict[str, float] | None = None
        self.workers: dict[str, str] | None = None
        self.last_token_s: float | None = None
        self._digest = hashlib.sha256()

    @property
    def over(self) -> bool:
        """Nothing that may follow can change the outcome."""
        return self.done or bool(self.error or self.broken)

    @property
    def digest(self) -> str:
        """Names the text so far."""
        return self._digest.hexdigest()[:16]

    def read(self, event: SseEvent) -> None:
        """Takes the next event; what follows the end of the answer is ignored."""
        if self.over:
            return
        count = 0 if event.data is None else self._read_data(event.t_s, event.data, event.name)
        self.events.append((event.t_s, count))
        if count:
            self.tokens += count
            self.last_token_s = event.t_s

    def read_cut_off(self, event: SseEvent) -> None:
        """Takes the event that the stream's end cut off: whole, or as if it had not come."""
        self.read(event)
        self.broken = ""

    def _read_data(self, t_s: float, data: bytes, name: str) -> int:
        if data.strip() == b"[DONE]":
            self.done = True
            return 0
        if name == "error":
            self.error = error_text(data)
            return 0
        try:
            chunk = decode_chunk(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.broken = f"an event is no chunk of an answer: {error}: {data[:120]!r}"
            return 0
        if _is_error(chunk):
            self.error = error_text(data)
            return 0
        return self._read_chunk(t_s, chunk)

    def _read_chunk(self, t_s: float, chunk: Chunk) -> int:
        self.served_id = self.served_id or str(chunk.id)
        if chunk.metrics:
            told = flat(chunk.metrics)
            self.metrics = {k: float(v) for k, v in told.items() if not isinstance(v, str)}
            self.workers = {k: v for k, v in told.items() if isinstance(v, str)} or None
        count = sum(self._read_choice(t_s, choice) for choice in chunk.choices[:1])
        if chunk.usage is not None:
            grown = self._read_usage(chunk.usage)
            if chunk.choices and grown is not None and self._usage_runs():
                self.counting = Counting.USAGE
                return grown
        return count

    def _usage_runs(self) -> bool:
        # A total on the last event only says nothing about the events before it.
        return self.counting is Counting.USAGE or (
            self.counting is Counting.EVENTS and self.tokens == 0
        )

    def _read_choice(self, t_s: float, choice: Choice) -> int:
        thinking, visible = choice.thinking, choice.visible
        self._digest.update((thinking + visible).encode(errors="surrogatepass"))
        if visible and self.answer_s is None:
            self.answer_s = t_s
        self.finish_reason = self.finish_reason or choice.finish_reason
        if choice.token_ids is not None:
            self.counting = Counting.IDS
            return len(choice.token_ids)
        return 1 if thinking or visible else 0

    def _read_usage(self, usage: Usage) -> int | None:
        """Tokens since those counted so far, where the server says."""
        if usage.prompt_tokens is not None:
            self.prompt_tokens = usage.prompt_tokens
        if usage.prompt_tokens_details is not None:
            self.cached_tokens = usage.prompt_tokens_details.cached_tokens
        if usage.completion_tokens is None:
            return None
        self.output_tokens = usage.completion_tokens
        return max(0, usage.completion_tokens - self.tokens)


def digest_of(text: str) -> str:
    """The digest of an answer whose text, reasoning and tool calls included, is ``text``."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def outcome_of(answer: Answer, forced_tokens: int | None) -> Outcome:
    """How a stream that came to its end, or was closed, counts.

    ``forced_tokens`` is the length the answer had to have, None where it was free to end.
    """
    if answer.error:
        return Outcome.INBAND_ERROR
    if answer.broken:
        return Outcome.BAD_STREAM
    if answer.finish_reason is None:
        return Outcome.TRUNCATED
    if answer.output_tokens is not None and answer.output_tokens != answer.tokens:
        return Outcome.COUNT_MISMATCH
    known = answer.output_tokens is not None or answer.counting is not Counting.EVENTS
    if known and forced_tokens is not None and answer.tokens < forced_tokens:
        return Outcome.SHORT
    return Outcome.NO_USAGE if answer.output_tokens is None else Outcome.OK


def error_text(data: bytes) -> str:
    """The message of an error body in any of the usual forms, else the body's start."""
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = None
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(message, str) and message:
            return message[:300]
    return data[:300].decode(errors="replace") or "an error without a text"


def flat(told: Mapping[str, object], scope: str = "") -> dict[str, float | str]:
    """Numbers and names; what is inside an object gets its name in front. Nothing else counts."""
    found: dict[str, float | str] = {}
    for name, value in told.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{scope}{name}.")
        elif isinstance(value, int | float | str):
            found[scope + name] = value
    return found


def _is_error(chunk: Chunk) -> bool:
    return chunk.error is not None or chunk.kind == "error"
