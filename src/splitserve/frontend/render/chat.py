"""A chat to its prompt, and what reading the answer must know of it."""

from typing import Any, Final

from splitserve.errors import CallerError
from splitserve.frontend.derender.context import ParseContext, thinking_after
from splitserve.frontend.derender.parsers.base import Thinking
from splitserve.frontend.derender.parsers.registry import reasoning_parser
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.messages import render_chat
from splitserve.frontend.render.offer import Offer
from splitserve.frontend.render.prompts import Room, encode_chat
from splitserve.frontend.sealed_template import SealedTemplate
from splitserve.protocol.openai.chat import ChatFields, ChatRequest

# More than any template writes after the last marker.
_END_CHARS: Final = 512


def template_of(model: ServedModel) -> SealedTemplate:
    """Raises CallerError for a model without chat."""
    if model.prompts is None:
        raise CallerError("this model has no chat template", param="messages")
    return model.prompts


def chat_text(
    template: SealedTemplate, request: ChatFields, shown_tools: tuple[dict[str, Any], ...]
) -> str:
    """The sealed prompt."""
    open_end = request.continue_final_message or False
    add_generation_prompt = request.add_generation_prompt
    return render_chat(
        template,
        request.messages,
        add_generation_prompt=not open_end
        if add_generation_prompt is None
        else add_generation_prompt,
        continue_final_message=open_end,
        extra=_template_arguments(request),
        tools=list(shown_tools) or None,
        documents=request.documents,
    )


def chat_ids(
    model: ServedModel, template: SealedTemplate, text: str, request: ChatFields, room: Room
) -> tuple[int, ...]:
    """The sealed prompt's ids."""
    add_special = request.add_special_tokens or False
    return encode_chat(model.tokenizer, template.seals, text, room, add_special=add_special)


def parse_context(
    model: ServedModel, template: SealedTemplate, text: str, request: ChatRequest, offer: Offer
) -> ParseContext:
    """``text`` is the sealed prompt."""
    reasoning = model.parsers.reasoning
    return ParseContext(
        reasoning=reasoning,
        tool_calls=model.parsers.tool_calls,
        thinking="closed" if reasoning is None else _thinking(template, text, request, reasoning),
        choice=offer.choice,
        tools=offer.specs,
        parallel=request.parallel_tool_calls is not False,
    )


def _template_arguments(request: ChatFields) -> dict[str, Any]:
    given = request.chat_template_kwargs or {}
    effort = request.reasoning_effort
    if effort is None:
        return given
    # Templates that know only on and off have a switch of their own.
    return {"reasoning_effort": effort, "enable_thinking": effort != "none", **given}


def _thinking(template: SealedTemplate, text: str, request: ChatRequest, name: str) -> Thinking:
    if request.continue_final_message:
        continued = _thinking_inside(request, name)
        if continued is not None:
            return continued
    return thinking_after(template.seals.genuine(text[-_END_CHARS:]), name)


def _thinking_inside(request: ChatRequest, name: str) -> Thinking | None:
    """Where the message that the model goes on writing has left off; None where it is empty."""
    kind = reasoning_parser(name)
    content = request.messages[-1].content or ""
    written = content if isinstance(content, str) else "".join(content)
    if written.rfind(kind.begin) > written.rfind(kind.end):
        return "open"
    return "closed" if written.strip() else None
