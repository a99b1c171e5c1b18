"""A JSON body into a checked request, or a CallerError that names the field."""

from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from splitserve.errors import CallerError
from splitserve.protocol.openai.body import Body
from splitserve.protocol.openai.chat import ChatRequest
from splitserve.protocol.openai.completions import CompletionRequest
from splitserve.protocol.openai.messages import CalledFunction, Message, PastCall
from splitserve.protocol.openai.responses import (
    CallItem,
    FlatTool,
    MessageItem,
    ReasoningConfig,
    ReasoningItem,
    ResponsesRequest,
    ResultItem,
    TextConfig,
)
from splitserve.protocol.openai.sampling import StreamOptions
from splitserve.protocol.openai.tokenize import Detokenize, TokenizeChat, TokenizeText
from splitserve.protocol.openai.tools import FunctionTool, Tool

Request = TypeVar("Request", bound=Body)

_MODELS: Final[tuple[type[Body], ...]] = (
    CalledFunction,
    CallItem,
    ChatRequest,
    CompletionRequest,
    Detokenize,
    FlatTool,
    FunctionTool,
    Message,
    MessageItem,
    PastCall,
    ReasoningConfig,
    ReasoningItem,
    ResponsesRequest,
    ResultItem,
    StreamOptions,
    TextConfig,
    TokenizeChat,
    TokenizeText,
    Tool,
)
_NAMES: Final = frozenset(
    field.alias or name for model in _MODELS for name, field in model.model_fields.items()
)


def parse(kind: type[Request], body: bytes) -> Request:
    """Raises CallerError (400); never shows the body's own content in the message."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _caller_error(error) from None


def _caller_error(error: ValidationError) -> CallerError:
    first = error.errors(include_url=False, include_input=False)[0]
    param = _param(first["loc"])
    if first["type"] == "json_invalid":
        return CallerError(f"the body is not valid JSON: {_reason(first)}", code="invalid_json")
    if param is None:
        return CallerError("the body must be a JSON object")
    if first["type"] == "missing":
        return CallerError(f"'{param}' is required", param=param, code="missing_required_parameter")
    code = "unsupported_parameter" if first["type"] == "unsupported" else "invalid_value"
    return CallerError(f"'{param}': {_reason(first)}", param=param, code=code)


def _param(loc: tuple[int | str, ...]) -> str | None:
    """``("messages", 1, "role")`` -> ``messages[1].role``; labels of unions are left out."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part in _NAMES:
            path += f".{part}" if path else part
    return path or None


def _reason(error: ErrorDetails) -> str:
    return error["msg"].removeprefix("Invalid JSON: ").replace("Input should", "must", 1)
