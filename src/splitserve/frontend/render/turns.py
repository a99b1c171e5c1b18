"""Items of the Responses API to messages: what one turn of the assistant consists of comes in
items of its own, and becomes one message."""

from collections.abc import Sequence

from splitserve.protocol.openai.messages import CalledFunction, Message, PastCall
from splitserve.protocol.openai.responses import (
    CallItem,
    Item,
    MessageItem,
    ReasoningItem,
    ResultItem,
)

Texts = str | tuple[str, ...]


def messages_of(instructions: str | None, items: Sequence[Item]) -> list[Message]:
    """``instructions`` come first, as the system's words."""
    turns = _Turns()
    if instructions:
        turns.say("system", instructions)
    for item in items:
        turns.add(item)
    return turns.finish()


class _Turns:
    """The messages so far, and the assistant's turn that is not over yet."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._thoughts: list[str] = []
        self._content: Texts | None = None
        self._calls: list[PastCall] = []

    def add(self, item: Item) -> None:
        match item:
            case MessageItem(role="assistant"):
                self._end_said()
                self._content = item.content
            case MessageItem():
                self.say(item.role, item.content)
            case CallItem():
                self._calls.append(_past_call(item))
            case ResultItem():
                self.say("tool", item.output, tool_call_id=item.call_id)
            case ReasoningItem():
                self._end_said()
                self._thoughts.append(_joined(item.content or item.summary))

    def say(self, role: str, content: Texts, tool_call_id: str | None = None) -> None:
        """A message that is not the assistant's."""
        self._end_turn()
        self._messages.append(
            Message.model_construct(role=role, content=content, tool_call_id=tool_call_id)
        )

    def finish(self) -> list[Message]:
        """All messages."""
        self._end_turn()
        return self._messages

    def _end_said(self) -> None:
        """Ends the turn where something has been said or called: after that comes a new one."""
        if self._content is not None or self._calls:
            self._end_turn()

    def _end_turn(self) -> None:
        if self._content is None and not self._calls and not self._thoughts:
            return
        self._messages.append(
            Message.model_construct(
                role="assistant",
                content=self._content,
                reasoning="\n".join(self._thoughts) or None,
                tool_calls=self._calls or None,
            )
        )
        self._thoughts, self._content, self._calls = [], None, []


def _past_call(item: CallItem) -> PastCall:
    function = CalledFunction.model_construct(name=item.name, arguments=item.arguments)
    return PastCall.model_construct(id=item.call_id, type="function", function=function)


def _joined(texts: Texts) -> str:
    return texts if isinstance(texts, str) else "\n".join(texts)
