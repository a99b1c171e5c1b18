"""One chunk of a streamed completion or chat completion, as far as the client needs it."""

import msgspec


class Function(msgspec.Struct):
    """A piece of a tool call."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct):
    """A piece of one tool call of an answer."""

    function: Function | None = None


class Delta(msgspec.Struct):
    """New text of a chat answer. Servers call the thinking by one of two names."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct):
    """``text`` is a completion's, ``delta`` a chat's."""

    text: str | None = None
    delta: Delta | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None

    @property
    def thinking(self) -> str:
        delta = self.delta
        return "" if delta is None else delta.reasoning or delta.reasoning_content or ""

    @property
    def visible(self) -> str:
        """Text of the answer, or of the call of a tool."""
        delta = self.delta
        if delta is None:
            return self.text or ""
        calls = [call.function for call in delta.tool_calls or () if call.function is not None]
        called = "".join((call.name or "") + (call.arguments or "") for call in calls)
        return (delta.content or "") + (delta.refusal or "") + called


class PromptDetails(msgspec.Struct):
    """How the prompt's tokens were come by."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Tokens so far, or of the whole answer."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class Chunk(msgspec.Struct, rename={"kind": "object"}):
    """The data of one event. ``error`` may be an object or a text; ``metrics``
    is what the server says of the request's times."""

    id: str | int = ""
    kind: str = ""
    message: str = ""
    choices: list[Choice] = []
    usage: Usage | None = None
    error: object = None
    metrics: dict[str, object] | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
