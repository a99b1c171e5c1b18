"""Chat messages in the form a template reads, and the sealed prompt text they make."""

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from splitserve.errors import CallerError
from splitserve.frontend.sealed_template import SealedTemplate
from splitserve.protocol.openai.messages import Message, PastCall

_PART_SEPARATOR: Final = "\n"
_SHORT_ID_CHARS: Final = 9
_SHORT_ID: Final = re.compile(f"[a-zA-Z0-9]{{{_SHORT_ID_CHARS}}}")


def render_chat(
    template: SealedTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool,
    continue_final_message: bool,
    extra: Mapping[str, Any],
    tools: list[dict[str, Any]] | None = None,
    documents: list[dict[str, Any]] | None = None,
) -> str:
    """The prompt, sealed. Raises CallerError as SealedTemplate.render does.

    With ``continue_final_message`` it ends with the last message's text, whitespace included, and
    without the end-of-turn token, so that the model goes on writing that message.
    """
    if add_generation_prompt and continue_final_message:
        raise CallerError(
            "'continue_final_message' and 'add_generation_prompt' exclude each other",
            param="continue_final_message",
        )
    if continue_final_message and messages[-1].tool_calls:
        raise CallerError(
            "'continue_final_message' cannot continue a message with tool calls",
            param="continue_final_message",
        )
    shaped = [_shaped(template, message) for message in messages]
    cut_at = _mark_end(shaped[-1]) if continue_final_message else None
    text = template.render(
        shaped,
        add_generation_prompt=add_generation_prompt,
        extra=extra,
        tools=tools,
        documents=documents,
    )
    return text if cut_at is None else _until(text, *cut_at)


def _shaped(template: SealedTemplate, message: Message) -> dict[str, Any]:
    # Templates know "system"; "developer" is OpenAI's newer word for it.
    role = "system" if message.role == "developer" else message.role
    shaped: dict[str, Any] = {"role": role, "content": _content(template, message)}
    if message.name is not None:
        shaped["name"] = message.name
    if message.tool_call_id is not None:
        shaped["tool_call_id"] = _call_id(template, message.tool_call_id)
    thoughts = message.reasoning or message.reasoning_content
    if thoughts:
        # Templates know it by either name.
        shaped["reasoning"] = shaped["reasoning_content"] = thoughts
    if message.tool_calls:
        shaped["tool_calls"] = [_call(template, call) for call in message.tool_calls]
    return shaped


def _call(template: SealedTemplate, call: PastCall) -> dict[str, Any]:
    text, value = call.function.arguments
    function = {
        "name": call.function.name,
        "arguments": text if template.habits.argument_text else value,
    }
    shaped: dict[str, Any] = {"type": call.type, "function": function}
    return shaped if call.id is None else {"id": _call_id(template, call.id), **shaped}


def _call_id(template: SealedTemplate, call_id: str) -> str:
    if not template.habits.short_ids or _SHORT_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:_SHORT_ID_CHARS]


def _content(template: SealedTemplate, message: Message) -> Any:
    habits, content = template.habits, message.content
    if not content and message.tool_calls and habits.null_content:
        return None
    texts = (content or "",) if not isinstance(content, tuple) else content
    if message.role == "assistant":
        texts = tuple([template.seals.seal_structure(text) for text in texts])
    if habits.parts and (isinstance(content, tuple) or not habits.text):
        return _parts(texts)
    return _PART_SEPARATOR.join(texts)


def _parts(texts: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _mark_end(last: dict[str, Any]) -> tuple[str, str]:
    """Marks both ends of the last text, so that a template which trims cannot trim it."""
    mark = secrets.token_hex(8)
    begin, end = f"<{mark}", f"{mark}>"
    content = last["content"]
    if isinstance(content, str):
        last["content"] = begin + content + end
    else:
        parts = content or _parts(("",))
        parts[0]["text"] = begin + parts[0]["text"]
        parts[-1]["text"] += end
        last["content"] = parts
    return begin, end


def _until(text: str, begin: str, end: str) -> str:
    cut = text.rfind(end)
    if cut < 0:
        raise CallerError(
            "the model's chat template drops the final message, so it cannot be continued",
            param="continue_final_message",
        )
    return text[:cut].replace(begin, "").replace(end, "")
