"""Answers of POST /v1/chat/completions."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from splitserve.frontend.derender.answer import Answer
from splitserve.frontend.derender.events import (
    Delta,
    Event,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCall,
    visible_text,
)
from splitserve.frontend.derender.head import Head, encode_json, encode_line
from splitserve.frontend.derender.logprobs import chat_logprobs
from splitserve.frontend.derender.running_usage import RunningUsage
from splitserve.frontend.tokenizer import Tokenizer

KIND: Final = "chat.completion"
CHUNK_KIND: Final = "chat.completion.chunk"
_ROLE: Final = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'


class ChatStream:
    """Writes the events of one choice; the role goes out with the first of them.

    Each chunk has one kind of thing in its delta: text, reasoning, or parts of one tool call, so
    that a client which reads one field only misses nothing. What belongs to the tokens
    (log-probabilities, ids, the reason of the end) goes with the last of a delta's chunks.
    ``prompt_token_ids`` is given where token ids were asked for, ``running`` where every chunk is
    to tell the counts so far.
    """

    __slots__ = (
        "_after",
        "_before",
        "_opening",
        "_running",
        "_text_after",
        "_text_before",
        "_tokenizer",
        "_with_ids",
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        head: Head,
        index: int,
        prompt_token_ids: tuple[int, ...] | None,
        running: RunningUsage | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        before, after = head.around_choice(CHUNK_KIND, index)
        self._before, self._after = before, after
        self._text_before = before + b'"delta":{"content":'
        self._text_after = b'},"logprobs":null,"finish_reason":null' + after
        self._with_ids = prompt_token_ids is not None
        self._running = running
        begin_after = after if running is None else running.after()
        self._opening = before + _ROLE + self._prompt_field(prompt_token_ids) + begin_after

    def write(self, delta: Delta) -> bytes:
        """Empty when there is nothing to tell yet."""
        if self._running is not None:
            self._after = self._running.add(delta)
            self._text_after = b'},"logprobs":null,"finish_reason":null' + self._after
        if delta.finish is None and delta.scored is None and not self._with_ids:
            if not delta.events:
                return b""
            body = self._chunks(delta.events)
        else:
            body = self._full(delta)
        if self._opening:
            body, self._opening = self._opening + body, b""
        return body

    def _chunks(self, events: Sequence[Event]) -> bytes:
        if len(events) == 1 and type(event := events[0]) is TextDelta:
            return self._text_before + encode_line(event.text) + self._text_after
        return b"".join(
            self._before + b'"delta":' + encode_line(fields) + self._text_after[1:]
            for fields in delta_fields(events)
        )

    def _full(self, delta: Delta) -> bytes:
        *others, last = delta_fields(delta.events) or [{}]
        scored = delta.scored
        tail: dict[str, Any] = {
            "delta": last,
            "logprobs": chat_logprobs(self._tokenizer, scored) if scored else None,
            "finish_reason": delta.finish.reason if delta.finish else None,
            "stop_reason": delta.finish.stop_reason if delta.finish else None,
        }
        if self._with_ids:
            tail["token_ids"] = delta.token_ids
        before = b"".join(
            self._before + b'"delta":' + encode_line(fields) + self._text_after[1:]
            for fields in others
        )
        return before + self._before + encode_line(tail)[1:-1] + self._after

    @staticmethod
    def _prompt_field(prompt_token_ids: tuple[int, ...] | None) -> bytes:
        if prompt_token_ids is None:
            return b""
        return b',"prompt_token_ids":' + encode_json(prompt_token_ids)


def delta_fields(events: Iterable[Event]) -> list[dict[str, Any]]:
    """``delta`` objects, each with one kind of thing; neighbours of one kind are joined."""
    found: list[dict[str, Any]] = []
    before: Event | None = None
    for event in events:
        joined = found[-1] if found and _same_kind(before, event) else None
        match event:
            case TextDelta(text):
                _grow(found, joined, "content", text)
            case ReasoningDelta(text):
                _grow(found, joined, "reasoning", text)
            case ToolCall():
                found.append({"tool_calls": [_begin(event)]})
            case ToolArguments(index, text) if joined is None:
                found.append({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            case ToolArguments(_, text):
                joined["tool_calls"][0]["function"]["arguments"] += text
        before = event
    return found


def _same_kind(before: Event | None, event: Event) -> bool:
    if isinstance(event, ToolArguments):
        return isinstance(before, ToolCall | ToolArguments) and before.index == event.index
    return type(before) is type(event)


def _grow(found: list[dict[str, Any]], joined: dict[str, Any] | None, name: str, text: str) -> None:
    if joined is None:
        found.append({name: text})
    else:
        joined[name] += text


def _begin(call: ToolCall) -> dict[str, Any]:
    return {
        "index": call.index,
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": ""},
    }


def chat_message(events: Sequence[Event]) -> dict[str, Any]:
    """The whole answer's ``message``. Content is null where only tools were called."""
    calls: list[dict[str, Any]] = []
    reasoning: list[str] = []
    for event in events:
        match event:
            case ReasoningDelta(text):
                reasoning.append(text)
            case ToolCall(_, call_id, name):
                function = {"name": name, "arguments": ""}
                calls.append({"id": call_id, "type": "function", "function": function})
            case ToolArguments(index, text):
                calls[index]["function"]["arguments"] += text
    content = visible_text(events)
    message: dict[str, Any] = {
        "role": "assistant",
        "content": content if content or not calls else None,
        "refusal": None,
    }
    if reasoning:
        message["reasoning"] = "".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    return message


def chat_choice(
    tokenizer: Tokenizer,
    index: int,
    answer: Answer,
    prompt_token_ids: tuple[int, ...] | None,
) -> dict[str, Any]:
    """One finished choice of a whole answer."""
    choice: dict[str, Any] = {
        "index": index,
        "message": chat_message(answer.events),
        "logprobs": None if answer.scored is None else chat_logprobs(tokenizer, answer.scored),
        "finish_reason": answer.finish.reason if answer.finish else None,
        "stop_reason": answer.finish.stop_reason if answer.finish else None,
    }
    if prompt_token_ids is not None:
        choice["token_ids"] = answer.token_ids
        choice["prompt_token_ids"] = prompt_token_ids
    return choice
