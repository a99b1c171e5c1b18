"""The body of POST /v1/chat/completions."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, FailFast, Field, PlainValidator, ValidationInfo

from splitserve.protocol.openai.fields import Count, Unsupported, wrong
from splitserve.protocol.openai.sampling import Body, LogprobCount, SamplingFields

# Checking one of them takes microseconds, during which nothing else runs.
MAX_MESSAGES: Final = 8192
MAX_PARTS: Final = 1024

Role = Literal["system", "developer", "user", "assistant"]


def _supported_role(value: Any) -> Any:
    if value in ("tool", "function"):
        raise wrong(f"role '{value}' is not supported yet")
    return value


def _content(value: Any, info: ValidationInfo) -> str | tuple[str, ...] | None:
    """Text, the texts of a list of text parts, or None where the role allows it."""
    if isinstance(value, str):
        return value
    if value is None:
        if info.data.get("role", "assistant") == "assistant":
            return None
        raise wrong("is required for this role")
    if not isinstance(value, list):
        raise wrong("must be a string or a list of text parts")
    if len(value) > MAX_PARTS:
        raise wrong(f"must have at most {MAX_PARTS} parts")
    return tuple(_part_text(number, part) for number, part in enumerate(value))


def _part_text(number: int, part: Any) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise wrong(f"part {number} must be an object with a 'type'")
    if part["type"] != "text":
        raise wrong(f"part {number} has type '{part['type'][:64]}'; only 'text' is supported")
    if not isinstance(part.get("text"), str):
        raise wrong(f"part {number} must have a string 'text'")
    return str(part["text"])


Content = Annotated[str | tuple[str, ...] | None, PlainValidator(_content)]


class Message(Body):
    """One turn. ``content`` as a tuple holds the texts of a list of parts, in order."""

    role: Annotated[Role, BeforeValidator(_supported_role)]
    content: Content = Field(default=None, validate_default=True)
    name: str | None = None

    tool_calls: Unsupported = None
    tool_call_id: Unsupported = None
    function_call: Unsupported = None


class ChatRequest(SamplingFields):
    """``max_completion_tokens`` is the newer name of ``max_tokens`` and wins over it."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES), FailFast()]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: LogprobCount | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    tools: Unsupported = None
    tool_choice: Any = None
    functions: Unsupported = None
    function_call: Unsupported = None
    chat_template: Unsupported = None
    documents: Unsupported = None
    audio: Unsupported = None
    modalities: Any = None
