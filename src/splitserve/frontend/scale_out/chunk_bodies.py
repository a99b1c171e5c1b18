"""One Delta as one chunk object: of a streamed chat, of a streamed completion.

A stream of events may tell one delta in several chunks; here there is one a call, so what the
delta has of every kind stands in it side by side.
"""

from collections.abc import Iterable
from typing import Any

from splitserve.frontend.derender import chat, completions
from splitserve.frontend.derender.events import (
    Delta,
    Event,
    ReasoningDelta,
    TextDelta,
    ToolArguments,
    ToolCall,
)
from splitserve.frontend.derender.head import Head
from splitserve.frontend.derender.logprobs import chat_logprobs, completion_logprobs
from splitserve.frontend.scale_out.tier import Kind
from splitserve.frontend.tokenizer import Tokenizer


def chunk_body(
    kind: Kind, head: Head, choices: list[dict[str, Any]], usage: dict[str, Any] | None
) -> dict[str, Any]:
    """``chunk`` of a streamed derender's answer."""
    name = chat.CHUNK_KIND if kind == "chat" else completions.KIND
    return {**head.fields(name), "choices": choices, "usage": usage}


def chat_chunk_choice(
    tokenizer: Tokenizer, index: int, delta: Delta, *, first: bool
) -> dict[str, Any]:
    """The role goes with the first."""
    fields = {"role": "assistant"} if first else {}
    return {
        "index": index,
        "delta": {**fields, **merged_fields(delta.events)},
        "logprobs": chat_logprobs(tokenizer, delta.scored) if delta.scored else None,
        **_end(delta),
    }


def completion_chunk_choice(tokenizer: Tokenizer, index: int, delta: Delta) -> dict[str, Any]:
    return {
        "index": index,
        "text": delta.text,
        "logprobs": completion_logprobs(tokenizer, delta.scored) if delta.scored else None,
        **_end(delta),
    }


def merged_fields(events: Iterable[Event]) -> dict[str, Any]:
    """``delta`` with all that ``events`` bring: each kind joined, calls by their index."""
    content, reasoning = "", ""
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        match event:
            case TextDelta(text):
                content += text
            case ReasoningDelta(text):
                reasoning += text
            case ToolCall(index, call_id, name):
                function = {"name": name, "arguments": ""}
                calls[index] = {
                    "index": index,
                    "id": call_id,
                    "type": "function",
                    "function": function,
                }
            case ToolArguments(index, text):
                call = calls.setdefault(index, {"index": index, "function": {"arguments": ""}})
                call["function"]["arguments"] += text
    fields: dict[str, Any] = {"content": content or None}
    if reasoning:
        fields["reasoning"] = reasoning
    if calls:
        fields["tool_calls"] = list(calls.values())
    return fields


def _end(delta: Delta) -> dict[str, Any]:
    return {
        "finish_reason": delta.finish.reason if delta.finish else None,
        "stop_reason": delta.finish.stop_reason if delta.finish else None,
    }
