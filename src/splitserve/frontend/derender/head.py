"""What all chunks of one answer begin with, encoded once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

encode_json: Final = msgspec.json.encode

DONE: Final = b"data: [DONE]\n\n"
_LINE_BREAKS: Final = (("\u0085", b"\\u0085"), ("\u2028", b"\\u2028"), ("\u2029", b"\\u2029"))


@dataclass(frozen=True, slots=True)
class Head:
    """``answer_id`` is the answer's ``id``, the same on every chunk; ``created`` is Unix seconds.

    With ``include_usage`` every chunk has a ``usage`` field, null but on the last.
    """

    answer_id: str
    model: str
    created: int
    include_usage: bool = False

    def fields(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
        }

    def around_choice(self, kind: str, index: int) -> tuple[bytes, bytes]:
        """The bytes of an event before and after the rest of its single choice's fields."""
        opening = encode_json(self.fields(kind))[:-1]
        before = b'data: %s,"choices":[{"index":%d,' % (opening, index)
        return before, b'}],"usage":null}\n\n' if self.include_usage else b"}]}\n\n"

    def usage_event(
        self, kind: str, usage: dict[str, Any], metrics: dict[str, Any] | None = None
    ) -> bytes:
        """The last chunk of a stream that was asked for usage; it has no choice."""
        return event(self._whole(kind, [], usage, metrics))

    def body(
        self,
        kind: str,
        choices: Sequence[dict[str, Any]],
        usage: dict[str, Any],
        metrics: dict[str, Any] | None,
    ) -> bytes:
        """A whole answer."""
        return encode_json(self._whole(kind, choices, usage, metrics))

    def _whole(
        self,
        kind: str,
        choices: Sequence[dict[str, Any]],
        usage: dict[str, Any],
        metrics: dict[str, Any] | None,
    ) -> dict[str, Any]:
        told = {} if metrics is None else {"metrics": metrics}
        return {**self.fields(kind), "choices": choices, "usage": usage, **told}


def event(payload: object) -> bytes:
    """One server-sent event."""
    return b"data: " + encode_line(payload) + b"\n\n"


def encode_line(payload: object) -> bytes:
    """JSON in one line for every reader: Unicode's line breaks, which JSON leaves as they are,
    get escaped, since some readers of event streams split lines at them."""
    raw = encode_json(payload)
    if not raw.isascii():
        for char, escaped in _LINE_BREAKS:
            raw = raw.replace(char.encode(), escaped)
    return raw
