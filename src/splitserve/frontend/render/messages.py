"""Chat messages in the form a template reads, and the prompt text they make."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from splitserve.errors import CallerError
from splitserve.frontend.template import ChatTemplate
from splitserve.protocol.openai.chat import Message

_PART_SEPARATOR: Final = "\n"


def render_chat(
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool,
    continue_final_message: bool,
    extra: Mapping[str, Any],
) -> str:
    """The prompt text. Raises CallerError as ChatTemplate.render does.

    With ``continue_final_message`` it ends with the last message's text, whitespace included, and
    without the end-of-turn token, so that the model goes on writing that message.
    """
    if add_generation_prompt and continue_final_message:
        raise CallerError(
            "'continue_final_message' and 'add_generation_prompt' exclude each other",
            param="continue_final_message",
        )
    shaped = [_shaped(template, message) for message in messages]
    if continue_final_message:
        return _render_open(template, shaped, extra)
    return template.render(shaped, add_generation_prompt=add_generation_prompt, extra=extra)


def _shaped(template: ChatTemplate, message: Message) -> dict[str, Any]:
    # Templates know "system"; "developer" is OpenAI's newer word for it.
    role = "system" if message.role == "developer" else message.role
    shaped: dict[str, Any] = {"role": role, "content": _content(template, message.content)}
    if message.name is not None:
        shaped["name"] = message.name
    return shaped


def _content(template: ChatTemplate, content: str | tuple[str, ...] | None) -> Any:
    if isinstance(content, tuple):
        if template.takes_parts:
            return _parts(content)
        return _PART_SEPARATOR.join(content)
    text = content or ""
    return text if template.takes_text else _parts((text,))


def _parts(texts: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _render_open(
    template: ChatTemplate, shaped: list[dict[str, Any]], extra: Mapping[str, Any]
) -> str:
    """Marks both ends of the last text, so that a template which trims cannot trim it."""
    mark = secrets.token_hex(8)
    begin, end = f"<{mark}", f"{mark}>"
    last = shaped[-1]
    content = last["content"]
    if isinstance(content, str):
        last["content"] = begin + content + end
    else:
        parts = content or _parts(("",))
        parts[0]["text"] = begin + parts[0]["text"]
        parts[-1]["text"] += end
        last["content"] = parts
    text = template.render(shaped, add_generation_prompt=False, extra=extra)
    cut = text.rfind(end)
    if cut < 0:
        raise CallerError(
            "the model's chat template drops the final message, so it cannot be continued",
            param="continue_final_message",
        )
    return text[:cut].replace(begin, "").replace(end, "")
