"""The body of POST /v1/chat/completions."""

from typing import Any, Literal

from splitserve.protocol.openai.body import Body
from splitserve.protocol.openai.fields import Count, Unsupported
from splitserve.protocol.openai.messages import Messages
from splitserve.protocol.openai.sampling import LogprobCount, SamplingFields
from splitserve.protocol.openai.tools import ToolChoiceField, Tools

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ChatFields(Body):
    """What makes a prompt of messages. ``documents`` and ``chat_template_kwargs`` go to the
    template as they are."""

    messages: Messages
    tools: Tools | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: ReasoningEffort | None = None

    chat_template: Unsupported = None


class ChatRequest(ChatFields, SamplingFields):
    """``max_completion_tokens`` is the newer name of ``max_tokens`` and wins over it."""

    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: LogprobCount | None = None
    tool_choice: ToolChoiceField | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None

    functions: Unsupported = None
    function_call: Unsupported = None
    audio: Unsupported = None
    modalities: Any = None
