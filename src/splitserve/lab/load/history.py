"""What was said in conversations so far, with the answers that the server gave. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import msgspec

from splitserve.lab.load.request import LoadRequest, Message
from splitserve.lab.load.wire.chunk import Choice, decode_chunk


@dataclass(frozen=True, slots=True)
class Served:
    """An answer as it came. ``ids`` None where the server gave none with its text."""

    ids: tuple[int, ...] | None
    text: str


class Histories:
    """The conversations of one client, until it is closed."""

    def __init__(self) -> None:
        self._said: dict[str, LoadRequest] = {}
        self._served: dict[str, Served] = {}

    def whole(self, request: LoadRequest) -> LoadRequest:
        """``request`` with all before it in its prompt, where it follows something.

        An answer that broke off stands as far as it came, one that never came not at all.
        """
        session = request.session
        if session is None:
            return request
        before = self._said.get(session) if request.follows else None
        served = self._served.pop(session, None)
        if before is not None:
            request = replace(request, prompt=_after(before, served, request))
        self._said[session] = request
        return request

    def answered(self, request: LoadRequest, served: Served) -> None:
        """What came of ``request``, if it is part of a conversation."""
        if request.session is not None:
            self._served[request.session] = served


def served_by(events: Sequence[bytes]) -> Served:
    """The answer in the data of a stream's events, what is no chunk of it left out.

    Reasoning and calls of tools are no part of ``text``: a client does not send them back.
    """
    ids: list[int] = []
    texts: list[str] = []
    told = False
    for data in events:
        choice = _choice(data)
        if choice is None:
            continue
        if choice.token_ids is not None:
            told = True
            ids += choice.token_ids
        texts.append(choice.text or (choice.delta.content if choice.delta else None) or "")
    text = "".join(texts)
    return Served(tuple(ids) if told or not text else None, text)


def _after(
    before: LoadRequest, served: Served | None, request: LoadRequest
) -> tuple[int, ...] | tuple[Message, ...]:
    if request.is_chat:
        answer: tuple[Message, ...] = ()
        if served is not None:
            answer = ({"role": "assistant", "content": served.text},)
        return (
            cast("tuple[Message, ...]", before.prompt)
            + answer
            + cast("tuple[Message, ...]", request.prompt)
        )
    ids = () if served is None else served.ids
    known = request.instead if ids is None else ids
    return cast("tuple[int, ...]", before.prompt) + known + cast("tuple[int, ...]", request.prompt)


def _choice(data: bytes) -> Choice | None:
    try:
        choices = decode_chunk(data).choices
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return choices[0] if choices else None
