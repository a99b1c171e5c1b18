"""A request before it is sent, and its body on the wire."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

Message = dict[str, object]
"""One message of a chat, as OpenAI writes it."""

_STREAMED: Final[dict[str, object]] = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What to ask for. The same for every arm.

    The prompt is token ids or messages. ``max_tokens`` is forced on the answer where ``forced``.
    ``offset_s`` is when a trace saw it, from the trace's start. Turns of one ``session`` are in
    order; ``think_s`` passes between the answer before and this turn. With ``follows`` the prompt
    is only what is new: it is sent after all that was said before, answers as they were served;
    ``instead`` are ids for the answer before, where the server gives none.
    """

    request_id: str
    prompt: tuple[int, ...] | tuple[Message, ...]
    max_tokens: int
    forced: bool = True
    offset_s: float = 0.0
    session: str | None = None
    turn: int = 0
    think_s: float = 0.0
    follows: bool = False
    instead: tuple[int, ...] = ()

    @property
    def is_chat(self) -> bool:
        return bool(self.prompt) and isinstance(self.prompt[0], dict)

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.is_chat else "/v1/completions"


def prompt_lengths(turns: Sequence[LoadRequest]) -> list[int]:
    """Tokens of each turn's whole prompt, where answers are as long as their caps. Of ids only."""
    lengths: list[int] = []
    said = 0
    for turn in turns:
        lengths.append(len(turn.prompt) + (said if turn.follows else 0))
        said = lengths[-1] + turn.max_tokens
    return lengths


@dataclass(frozen=True, slots=True)
class Asking:
    """How every request of a run is asked.

    ``extra`` are further fields of the body. Token ids come back with the text where
    ``with_token_ids``: Splitserve and vLLM give them, others may refuse the field.
    """

    model: str
    temperature: float = 0.0
    seed: int | None = 0
    with_token_ids: bool = True
    extra: dict[str, object] = field(default_factory=dict)


def body_of(request: LoadRequest, asking: Asking) -> bytes:
    """The JSON body of a streamed request."""
    body: dict[str, object] = {"model": asking.model, "max_tokens": request.max_tokens}
    body["messages" if request.is_chat else "prompt"] = request.prompt
    body |= _STREAMED | {"temperature": asking.temperature}
    if asking.seed is not None:
        body["seed"] = asking.seed
    if request.forced:
        body["ignore_eos"] = True
    if asking.with_token_ids:
        body["return_token_ids"] = True
    return msgspec.json.encode(body | asking.extra)
