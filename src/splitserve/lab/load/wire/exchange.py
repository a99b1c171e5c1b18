"""One response as it comes in: HTTP below, the answer's events above."""

import asyncio
from dataclasses import dataclass
from typing import Final

from splitserve.lab.load.record import Outcome
from splitserve.lab.load.wire.answer import Answer, error_text, outcome_of
from splitserve.lab.load.wire.sse import SseEvent, SseParser

_KEPT_BODY_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait, in seconds: for a connection, the first token, each next one, the end."""

    connect_s: float = 5.0
    first_s: float = 60.0
    gap_s: float = 20.0
    total_s: float = 300.0


class Exchange:
    """Takes one response (``wire.http.Reader``). ``ended`` is set once the outcome is known.

    Times are of the connection's clock. ``heard`` is the data of the answer's events, empty unless
    ``keeps``.
    """

    def __init__(self, forced_tokens: int | None, *, keeps: bool = False) -> None:
        self.answer = Answer()
        self.heard: list[bytes] = []
        self.ended = asyncio.Event()
        self.status: int | None = None
        self.first_byte_s: float | None = None
        self.ended_s = 0.0
        self.outcome = Outcome.TRUNCATED
        self.error = ""
        self._forced_tokens = forced_tokens
        self._keeps = keeps
        self._parser = SseParser()
        self._streams = False
        self._body = b""
        self._retry_after = ""

    def deadline(self, sent_s: float, limits: Limits) -> tuple[float, Outcome]:
        """When waiting ends as things are now, and what the outcome is then."""
        last_s = self.answer.last_token_s
        if last_s is None:
            next_one = (sent_s + limits.first_s, Outcome.TIMEOUT_FIRST)
        else:
            next_one = (last_s + limits.gap_s, Outcome.TIMEOUT_GAP)
        return min(next_one, (sent_s + limits.total_s, Outcome.TIMEOUT_TOTAL))

    def cut(self, t_s: float, outcome: Outcome, error: str) -> None:
        """The client gives up. An answer that was finished, only not closed, stays one."""
        if self.answer.finish_reason is not None:
            outcome, error = outcome_of(self.answer, self._forced_tokens), ""
        self._end(t_s, outcome, error)

    def on_head(self, t_s: float, status: int, headers: dict[str, str]) -> None:
        self.first_byte_s = t_s
        self.status = status
        self._streams = status == 200 and "event-stream" in headers.get("content-type", "")
        self._retry_after = headers.get("retry-after", "")

    def on_body(self, t_s: float, data: bytes) -> None:
        if self._streams:
            self._read(self._parser.feed(t_s, data))
        elif len(self._body) < _KEPT_BODY_BYTES:
            self._body += data

    def on_end(self, t_s: float) -> None:
        self._finish(t_s, "")

    def on_lost(self, t_s: float, error: str) -> None:
        self._finish(t_s, error or "the connection was closed")

    def _read(self, events: list[SseEvent]) -> None:
        for event in events:
            self.answer.read(event)
            if self._keeps and event.data is not None:
                self.heard.append(event.data)
            if self.answer.over:
                self._end_by_answer(event.t_s, "")
                return

    def _finish(self, t_s: float, lost: str) -> None:
        if self.ended.is_set():
            return
        if self.status is None:
            self._end(t_s, Outcome.CONNECT_ERROR, lost or "no response came")
        elif self.status != 200:
            after = f" (Retry-After: {self._retry_after})" if self._retry_after else ""
            self._end(t_s, Outcome.HTTP_ERROR, error_text(self._body) + after)
        elif not self._streams:
            error = error_text(self._body)
            faulty = b'"error"' in self._body
            self._end(t_s, Outcome.INBAND_ERROR if faulty else Outcome.BAD_STREAM, error)
        else:
            for event in self._parser.finish():
                self.answer.read_cut_off(event)
            self._end_by_answer(t_s, lost)

    def _end_by_answer(self, t_s: float, lost: str) -> None:
        outcome = outcome_of(self.answer, self._forced_tokens)
        error = self.answer.error or self.answer.broken
        if outcome is Outcome.TRUNCATED:
            error = lost or "the stream ended without a finish_reason"
        self._end(t_s, outcome, error)

    def _end(self, t_s: float, outcome: Outcome, error: str) -> None:
        if self.ended.is_set():
            return
        self.ended_s, self.outcome, self.error = t_s, outcome, error
        self.ended.set()
