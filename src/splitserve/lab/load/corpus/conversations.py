"""Readers of a user's own conversations: ShareGPT's form, and OpenAI messages as JSON lines.

A conversation becomes a session: one request per answer in it. Its prompt is everything before,
with the answers that the server gave in place of the recorded ones. Only conversations with results
of tools go as recorded: those belong to the calls in the recorded answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

import msgspec

from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.load.request import LoadRequest, Message


@dataclass(frozen=True, slots=True)
class Talk:
    """How conversations become requests; ``forced`` as in LoadRequest."""

    max_tokens: int
    think_s: float = 0.0
    forced: bool = True


class _Said(msgspec.Struct, rename={"speaker": "from"}):
    value: str
    speaker: str


class _Shared(msgspec.Struct):
    conversations: list[_Said]
    id: str | int = ""


class _Messages(msgspec.Struct):
    messages: list[dict[str, object]]
    max_tokens: int | None = None


_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}


def read_sharegpt(path: Path, talk: Talk) -> list[LoadRequest]:
    """A JSON list of ``{"id", "conversations": [{"from", "value"}]}``.

    Raises ConfigError for another form, UnavailableError when the file cannot be read.
    """
    try:
        conversations = msgspec.json.decode(_bytes(path), type=list[_Shared])
        return [
            turn
            for index, one in enumerate(conversations)
            for turn in _turns([_message(said) for said in one.conversations], index, talk)
        ]
    except (msgspec.DecodeError, KeyError) as error:
        raise ConfigError(f"{path} is not in ShareGPT's form: {error}") from error


def read_messages(path: Path, talk: Talk) -> list[LoadRequest]:
    """JSON lines of ``{"messages": [...]}`` as sent to /v1/chat/completions, with an optional
    ``max_tokens`` each. Raises as ``read_sharegpt`` does.
    """
    requests: list[LoadRequest] = []
    for index, line in enumerate(_bytes(path).splitlines()):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line, type=_Messages)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}, line {index + 1}: no messages: {error}") from error
        max_tokens = one.max_tokens or talk.max_tokens
        requests += _turns(one.messages, index, Talk(max_tokens, talk.think_s, talk.forced))
    return requests


def _message(said: _Said) -> Message:
    return {"role": _ROLES[said.speaker], "content": said.value}


def _turns(messages: Sequence[Message], index: int, talk: Talk) -> Iterator[LoadRequest]:
    """One request before every recorded answer that follows a question, and for a last question."""
    recorded = any(message.get("role") == "tool" for message in messages)
    turn, begin = 0, 0
    for at, message in enumerate(messages):
        following = messages[at + 1].get("role") if at + 1 < len(messages) else "assistant"
        if message.get("role") in ("user", "tool") and following == "assistant":
            follows = bool(turn) and not recorded
            yield LoadRequest(
                request_id=f"talk-{index}-t{turn}",
                prompt=_asked(messages[begin : at + 1]) if follows else tuple(messages[: at + 1]),
                max_tokens=talk.max_tokens,
                forced=talk.forced,
                session=f"talk-{index}",
                turn=turn,
                think_s=talk.think_s if turn else 0.0,
                follows=follows,
            )
            turn, begin = turn + 1, at + 1


def _asked(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Without the recorded answer that leads."""
    return tuple(dropwhile(lambda message: message.get("role") == "assistant", messages))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error}") from error
