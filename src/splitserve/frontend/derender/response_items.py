"""An answer's events to the output items of OpenAI's Responses API, and the events of its stream.

One item for each run of one kind: reasoning, a message, a function call. Names are those of the
API (platform.openai.com, "Responses" and "Streaming events").
"""

from typing import Any, Final

from splitserve.frontend.derender.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCall,
)
from splitserve.frontend.derender.head import encode_line

_ID_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


class ResponseItems:
    """``done`` are the finished items. Events come out numbered, encoded as server-sent events."""

    def __init__(self, answer_id: str) -> None:
        self._answer_id = answer_id
        self._number = 0
        self._item: dict[str, Any] | None = None
        self._text: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self.done: list[dict[str, Any]] = []

    def event(self, kind: str, **fields: Any) -> bytes:
        """One event of the stream."""
        payload = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + encode_line(payload) + b"\n\n"

    def add(self, event: Event, logprobs: list[dict[str, Any]]) -> bytes:
        """``logprobs`` are the entries of the tokens that brought a TextDelta."""
        match event:
            case TextDelta(text):
                before = self._open("message")
                self._text.append(text)
                self._logprobs += logprobs
                return before + self._part_event(
                    "response.output_text.delta", delta=text, logprobs=logprobs
                )
            case ReasoningDelta(text):
                before = self._open("reasoning")
                self._text.append(text)
                return before + self._part_event("response.reasoning_text.delta", delta=text)
            case ToolCall():
                return self._open("function_call", call_id=event.call_id, name=event.name)
            case ToolArguments(_, text):
                self._text.append(text)
                return self._item_event("response.function_call_arguments.delta", delta=text)

    def close(self, status: str) -> bytes:
        """Ends the open item, if any. ``status`` is ``completed`` or ``incomplete``."""
        if self._item is None:
            return b""
        item, text = self._item, "".join(self._text)
        events = self._closing(item, text)
        item["status"] = status
        events += self.event("response.output_item.done", output_index=len(self.done), item=item)
        self.done.append(item)
        self._item, self._text, self._logprobs = None, [], []
        return events

    def _open(self, kind: str, **fields: Any) -> bytes:
        """Makes an item of ``kind`` the open one; a call is always a new one."""
        if self._item is not None and self._item["type"] == kind != "function_call":
            return b""
        events = self.close("completed")
        number = len(self.done)
        item = {
            "id": f"{_ID_PREFIXES[kind]}_{self._answer_id}_{number}",
            "type": kind,
            "status": "in_progress",
            **_empty(kind),
            **fields,
        }
        self._item = item
        events += self.event("response.output_item.added", output_index=number, item=item)
        if kind != "function_call":
            events += self._part_event("response.content_part.added", part=self._part("", []))
        return events

    def _closing(self, item: dict[str, Any], text: str) -> bytes:
        if item["type"] == "function_call":
            item["arguments"] = text
            return self._item_event(
                "response.function_call_arguments.done", arguments=text, name=item["name"]
            )
        part = self._part(text, self._logprobs)
        if item["type"] == "reasoning":
            events = self._part_event("response.reasoning_text.done", text=text)
        else:
            events = self._part_event(
                "response.output_text.done", text=text, logprobs=self._logprobs
            )
        events += self._part_event("response.content_part.done", part=part)
        item["content"] = [part]
        return events

    def _part(self, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        if self._item is not None and self._item["type"] == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _item_event(self, kind: str, **fields: Any) -> bytes:
        item_id = None if self._item is None else self._item["id"]
        return self.event(kind, item_id=item_id, output_index=len(self.done), **fields)

    def _part_event(self, kind: str, **fields: Any) -> bytes:
        return self._item_event(kind, content_index=0, **fields)


def _empty(kind: str) -> dict[str, Any]:
    match kind:
        case "message":
            return {"role": "assistant", "content": []}
        case "reasoning":
            return {"summary": [], "content": []}
        case _:
            return {"arguments": ""}
