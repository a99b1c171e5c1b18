"""What a chat template can print, found out by asking it to.

Templates differ in what they expect of a message and none says so; each of them has been written
against one form.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from splitserve.errors import CallerError

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]] | None
Print = Callable[[Messages, Tools], str]
"""Renders; raises CallerError where the template refuses."""

_WORD: Final = "splitserve_probe"
_VALUE: Final = "splitserve value"
_USER: Final = {"role": "user", "content": "Hi"}
_SYSTEM: Final = {"role": "system", "content": "Hi"}
_ASSISTANT: Final = {"role": "assistant", "content": "Hi"}
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": _WORD,
        "description": "Hi",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
    },
}
# Mistral's templates take ids of exactly nine letters and digits.
_SHORT_ID: Final = "abcdefghi"
_LONG_ID: Final = "call_abcdefghi"


@dataclass(frozen=True, slots=True)
class Habits:
    """``text`` and ``parts``: a message's content as a string, as a list of text parts, or both.

    ``tools``: it shows the tools to the model. ``null_content``: a message of tool calls alone has
    content None rather than an empty string. ``argument_text``: a call's arguments are JSON text
    rather than a mapping. ``short_ids``: calls' ids must have nine letters and digits.
    """

    text: bool
    parts: bool
    tools: bool
    null_content: bool
    argument_text: bool
    short_ids: bool


def habits_of(render: Print) -> Habits:
    """Asks about ten times."""
    parts = _shows(render, [_user([{"type": "text", "text": _WORD}])], unlike="'type'")
    null_content, argument_text = _call_form(render)
    called = [
        _called(None if null_content else "", _arguments(argument_text), call_id)
        for call_id in (_SHORT_ID, _LONG_ID)
    ]
    short, long = (_shows(render, messages, [_TOOL]) for messages in called)
    return Habits(
        text=_shows(render, [_user(_WORD)]) or not parts,
        parts=parts,
        tools=any(_shows(render, chat, [_TOOL]) for chat in ([_USER], [_SYSTEM, _USER])),
        null_content=null_content,
        argument_text=argument_text,
        short_ids=short and not long,
    )


def probes(habits: Habits) -> Iterator[tuple[Messages, Tools]]:
    """Conversations that lead through most of a template's branches."""
    turns = [
        [_USER],
        [_SYSTEM, _USER],
        [_USER, _ASSISTANT, _USER],
        _called(None if habits.null_content else "", _arguments(habits.argument_text)),
        [_USER, {**_ASSISTANT, "reasoning_content": "Hi", "reasoning": "Hi"}],
    ]
    for messages in turns:
        chat = messages if habits.text else [_in_parts(message) for message in messages]
        yield chat, None
        yield chat, [_TOOL]


def _call_form(render: Print) -> tuple[bool, bool]:
    """The first that works of the forms in which a call can be given."""
    for argument_text in (False, True):
        for content in (None, ""):
            try:
                text = render(_called(content, _arguments(argument_text)), [_TOOL])
            except CallerError:
                continue
            # Not as Python writes a dict, or None.
            if _VALUE in text and "{'" not in text and (content == "" or "None" not in text):
                return content is None, argument_text
    return False, False


def _arguments(as_text: bool) -> Any:
    return f'{{"a": "{_VALUE}"}}' if as_text else {"a": _VALUE}


def _called(content: str | None, arguments: Any, call_id: str = _SHORT_ID) -> Messages:
    function = {"name": _WORD, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    answer = {"role": "tool", "content": "Hi", "name": _WORD, "tool_call_id": call_id}
    return [_USER, {"role": "assistant", "content": content, "tool_calls": [call]}, answer]


def _shows(render: Print, messages: Messages, tools: Tools = None, unlike: str = "\0") -> bool:
    try:
        text = render(messages, tools)
    except CallerError:
        return False
    return _WORD in text and unlike not in text


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    return {**message, "content": [{"type": "text", "text": content}] if content else []}
