"""What the two endpoints do differently: one Form each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from splitserve.frontend.derender import chat, completions
from splitserve.frontend.derender.answer import Answer
from splitserve.frontend.derender.events import Delta
from splitserve.frontend.derender.head import Head
from splitserve.frontend.render.job import Job
from splitserve.frontend.render.pipeline import Renderer
from splitserve.frontend.tokenizer import Tokenizer

TokenIds = tuple[int, ...]


class Writer(Protocol):
    """Writes the events of one choice."""

    def write(self, delta: Delta) -> bytes:
        """Empty when there is nothing to tell yet."""
        ...


@dataclass(frozen=True, slots=True)
class Form:
    """``prefix`` begins the answer's id; ``chunk_kind`` is the ``object`` of a streamed chunk.

    ``writer`` and ``choice`` take the prompt's ids where the client asked for token ids.
    """

    prefix: str
    chunk_kind: str
    render: Callable[[Renderer, bytes], Job]
    writer: Callable[[Tokenizer, Head, int, TokenIds | None], Writer]
    choice: Callable[[Tokenizer, int, Answer, TokenIds | None], dict[str, Any]]
    body: Callable[[Head, Sequence[dict[str, Any]], dict[str, Any]], bytes]


CHAT: Final = Form(
    prefix="chatcmpl",
    chunk_kind=chat.CHUNK_KIND,
    render=Renderer.chat,
    writer=chat.ChatStream,
    choice=chat.chat_choice,
    body=chat.chat_body,
)

COMPLETION: Final = Form(
    prefix="cmpl",
    chunk_kind=completions.KIND,
    render=Renderer.completion,
    writer=completions.CompletionStream,
    choice=completions.completion_choice,
    body=completions.completion_body,
)
