"""The body of POST /v1/responses: OpenAI's Responses API, as far as it needs no memory."""

from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
)

from splitserve.protocol.openai.body import Body
from splitserve.protocol.openai.chat import ReasoningEffort
from splitserve.protocol.openai.fields import Count, Unsupported, wrong
from splitserve.protocol.openai.messages import CalledArguments, CalledName, text_or_parts
from splitserve.protocol.openai.sampling import LogprobCount, SamplingFields
from splitserve.protocol.openai.tools import (
    MAX_TOOLS,
    FunctionTool,
    ToolChoiceField,
    distinct_names,
)

MAX_ITEMS: Final = 8192
_TEXT_KINDS: Final = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
}
_THOUGHT_KINDS: Final = {"reasoning_text": "text", "summary_text": "text"}


def _texts(value: Any) -> str | tuple[str, ...]:
    return text_or_parts(value, _TEXT_KINDS)


def _thoughts(value: Any) -> str | tuple[str, ...]:
    return () if value is None else text_or_parts(value, _THOUGHT_KINDS)


Texts = Annotated[str | tuple[str, ...], PlainValidator(_texts)]
Thoughts = Annotated[str | tuple[str, ...], PlainValidator(_thoughts)]


class MessageItem(Body):
    """A turn of a conversation; the only kind of item that may leave out its ``type``."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Texts


class CallItem(Body):
    """A call the model made."""

    type: Literal["function_call"]
    call_id: str
    name: CalledName
    arguments: CalledArguments


class ResultItem(Body):
    """What a called function gave."""

    type: Literal["function_call_output"]
    call_id: str
    output: Texts


class ReasoningItem(Body):
    """What the model thought; ``content`` is the thoughts themselves."""

    type: Literal["reasoning"]
    content: Thoughts = ()
    summary: Thoughts = ()


# In angle brackets: the names of fields are shown to the client, those of kinds are not.
_KINDS: Final = {
    "message": "<message>",
    "function_call": "<call>",
    "function_call_output": "<result>",
    "reasoning": "<reasoning>",
}


def _kind(item: Any) -> str:
    return _KINDS[item.get("type", "message")]


def _known(item: Any) -> Any:
    if not isinstance(item, dict):
        raise wrong("must be an object")
    kind = item.get("type", "message")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise wrong(f"items of type {kind!r:.64} are not supported; {', '.join(_KINDS)} are")
    return item


Item = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[CallItem, Tag("<call>")]
    | Annotated[ResultItem, Tag("<result>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")],
    Discriminator(_kind),
    BeforeValidator(_known),
]


def _items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


Items = Annotated[
    list[Item],
    Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True),
    BeforeValidator(_items),
]


def _function_only(tool: Any) -> Any:
    if isinstance(tool, dict) and tool.get("type") != "function":
        raise wrong(f"tools of type {tool.get('type')!r:.64} are not supported; 'function' is")
    return tool


class FlatTool(FunctionTool):
    """A function, without the object that chat puts around it."""

    type: Literal["function"]


def _distinct(tools: list[FlatTool]) -> list[FlatTool]:
    distinct_names(tool.name for tool in tools)
    return tools


FlatTools = Annotated[
    list[Annotated[FlatTool, BeforeValidator(_function_only)]],
    Field(max_length=MAX_TOOLS, fail_fast=True),
    AfterValidator(_distinct),
]


class TextConfig(Body):
    """``format`` is text, json_object or json_schema, the latter with its fields beside it."""

    format: dict[str, Any] | None = None


class ReasoningConfig(Body):
    """How much the model shall think."""

    effort: ReasoningEffort | None = None


class ResponsesRequest(SamplingFields):
    """``input`` becomes a list of items whatever its form. ``store`` is ignored: nothing is stored.

    The last group needs memory or services that there are none of, so it is refused by name.
    """

    input: Items
    instructions: str | None = None
    tools: FlatTools | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Count | None = None
    top_logprobs: LogprobCount | None = None
    include: list[str] | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    include_reasoning: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    background: bool | None = None

    previous_response_id: Unsupported = None
    conversation: Unsupported = None
    prompt: Unsupported = None
