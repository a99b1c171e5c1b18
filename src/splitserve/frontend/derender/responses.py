"""Answers of POST /v1/responses (OpenAI's Responses API, stateless)."""

from collections.abc import Mapping
from typing import Any, Final

from splitserve.frontend.derender.events import Delta, Finish, ReasoningDelta, TextDelta
from splitserve.frontend.derender.head import Head, encode_json
from splitserve.frontend.derender.logprobs import chat_logprobs
from splitserve.frontend.derender.response_items import ResponseItems
from splitserve.frontend.tokenizer import Tokenizer

KIND: Final = "response"
_OUT_OF_ROOM: Final = {"reason": "max_output_tokens"}


class ResponseStream:
    """Writes the one choice. ``repeated`` are the request's fields that the answer repeats."""

    def __init__(self, tokenizer: Tokenizer, head: Head, repeated: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._head = head
        self._repeated = repeated
        self._items = ResponseItems(head.answer_id)
        self._begun = False
        self._finish: Finish | None = None
        self._reasoning_tokens = 0

    def write(self, delta: Delta) -> bytes:
        """Empty when there is nothing to tell yet."""
        events = [] if self._begun else [self._opening()]
        logprobs = self._logprobs(delta)
        for event in delta.events:
            events.append(self._items.add(event, logprobs if type(event) is TextDelta else []))
            if type(event) is TextDelta:
                logprobs = []
        if any(type(event) is ReasoningDelta for event in delta.events):
            self._reasoning_tokens += len(delta.token_ids)
        if delta.finish is not None:
            self._finish = delta.finish
            events.append(self._items.close(_status(delta.finish)))
        return b"".join(events)

    def close(self, counts: Mapping[str, Any]) -> bytes:
        """The last event, with the whole answer."""
        response = self.whole(counts)
        return self._items.event(f"response.{response['status']}", response=response)

    def body(self, counts: Mapping[str, Any]) -> bytes:
        """The finished answer as a body of its own: the stream, folded."""
        return encode_json(self.whole(counts))

    def whole(self, counts: Mapping[str, Any]) -> dict[str, Any]:
        """The finished answer. ``counts`` is OpenAI's ``usage`` of a chat."""
        usage = response_usage(counts, self._reasoning_tokens)
        return self._response(_status(self._finish), usage)

    def _opening(self) -> bytes:
        self._begun = True
        response = self._response("in_progress", None)
        return self._items.event("response.created", response=response) + self._items.event(
            "response.in_progress", response=response
        )

    def _logprobs(self, delta: Delta) -> list[dict[str, Any]]:
        if not delta.scored:
            return []
        entries: list[dict[str, Any]] = chat_logprobs(self._tokenizer, delta.scored)["content"]
        return entries

    def _response(self, status: str, usage: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": self._head.answer_id,
            "object": KIND,
            "created_at": self._head.created,
            "status": status,
            "error": None,
            "incomplete_details": _OUT_OF_ROOM if status == "incomplete" else None,
            "model": self._head.model,
            "output": list(self._items.done),
            "previous_response_id": None,
            "store": False,
            "background": False,
            **self._repeated,
            "usage": usage,
        }


def response_usage(counts: Mapping[str, Any], reasoning_tokens: int) -> dict[str, Any]:
    """Token counts under the names of this API. Reasoning tokens are those of chunks with any."""
    cached = counts.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": counts["total_tokens"],
    }


def _status(finish: Finish | None) -> str:
    return "incomplete" if finish is not None and finish.reason == "length" else "completed"
