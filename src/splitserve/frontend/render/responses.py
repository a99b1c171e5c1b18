"""A request of the Responses API as the chat it asks for."""

from typing import Any, Final

from splitserve.errors import CallerError
from splitserve.frontend.render.turns import messages_of
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.responses import FlatTool, ResponsesRequest
from splitserve.protocol.openai.sampling import SamplingFields
from splitserve.protocol.openai.tools import FunctionTool, Tool, ToolChoice

_LOGPROBS: Final = "message.output_text.logprobs"
# A chat's fields by the names that this API has for them.
_NAMES: Final = {
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "truncate_prompt_tokens": "truncation",
}


def as_chat(request: ResponsesRequest) -> ChatRequest:
    """Its values have been checked in the form they came in, so they are not checked again."""
    shared = {name: value for name, value in request if name in SamplingFields.model_fields}
    reasoning, include = request.reasoning, request.include or ()
    text_format = None if request.text is None else request.text.format
    return ChatRequest.model_construct(
        **{
            **shared,
            "max_tokens": request.max_output_tokens,
            "truncate_prompt_tokens": -1 if request.truncation == "auto" else None,
            "response_format": None if text_format is None else _response_format(text_format),
            "messages": messages_of(request.instructions, request.input),
            "tools": [_nested(tool) for tool in request.tools or ()],
            "tool_choice": request.tool_choice,
            "parallel_tool_calls": request.parallel_tool_calls,
            "logprobs": _LOGPROBS in include or request.top_logprobs is not None,
            "top_logprobs": request.top_logprobs,
            "reasoning_effort": None if reasoning is None else reasoning.effort,
            "include_reasoning": request.include_reasoning,
            "chat_template_kwargs": request.chat_template_kwargs,
        }
    )


def renamed(error: CallerError) -> CallerError:
    """What is wrong with the chat, in the words of this API."""
    path, dot, rest = (error.param or "").partition(".")
    name = _NAMES.get(path)
    if name is None:
        return error
    return CallerError(
        error.message.replace(f"'{path}", f"'{name}", 1),
        param=name + dot + rest,
        status=error.status,
        code=error.code,
    )


def repeated(request: ResponsesRequest) -> dict[str, Any]:
    """The fields that the answer repeats, defaults filled in."""
    text_format = None if request.text is None else request.text.format
    tools = [_shown(tool) for tool in request.tools or ()]
    return {
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "reasoning": {"effort": None if request.reasoning is None else request.reasoning.effort},
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": {"format": text_format or {"type": "text"}},
        "tool_choice": _shown_choice(request.tool_choice),
        "tools": tools,
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "truncation": request.truncation or "disabled",
        "user": request.user,
    }


def _nested(tool: FlatTool) -> Tool:
    function = FunctionTool.model_construct(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        strict=tool.strict,
    )
    return Tool.model_construct(type=tool.type, function=function)


def _response_format(text_format: dict[str, Any]) -> dict[str, Any]:
    """Here a schema's fields stand beside ``type``, in a chat in an object of their own."""
    if text_format.get("type") != "json_schema":
        return text_format
    schema = {name: value for name, value in text_format.items() if name != "type"}
    return {"type": "json_schema", "json_schema": schema}


def _shown(tool: FlatTool) -> dict[str, Any]:
    return {"type": tool.type, **tool.shown(), "strict": tool.strict}


def _shown_choice(choice: ToolChoice | None) -> str | dict[str, str]:
    if choice is None:
        return "auto"
    if choice.name is None:
        return choice.mode
    return {"type": "function", "name": choice.name}
