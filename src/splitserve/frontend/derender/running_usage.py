"""Token counts that go with every chunk of a stream (vLLM's ``continuous_usage_stats``)."""

from splitserve.frontend.derender.answer import usage
from splitserve.frontend.derender.events import Delta
from splitserve.frontend.derender.head import encode_json


class RunningUsage:
    """Counts of one choice: its prompt's tokens and its own so far."""

    __slots__ = ("_completion_tokens", "_prompt_tokens")

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0

    def add(self, delta: Delta) -> bytes:
        """Counts ``delta``'s tokens; the bytes that end its chunks."""
        self._completion_tokens += len(delta.token_ids)
        return self.after()

    def after(self) -> bytes:
        """The bytes after the fields of a chunk's choice, counts included."""
        counts = usage(self._prompt_tokens, self._completion_tokens, [])
        return b'}],"usage":' + encode_json(counts) + b"}\n\n"
