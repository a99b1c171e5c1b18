"""Answers of POST /v1/completions."""

from typing import Any, Final

from splitserve.frontend.derender.answer import Answer
from splitserve.frontend.derender.events import Delta
from splitserve.frontend.derender.head import Head, encode_line
from splitserve.frontend.derender.logprobs import completion_logprobs
from splitserve.frontend.derender.running_usage import RunningUsage
from splitserve.frontend.tokenizer import Tokenizer

KIND: Final = "text_completion"


class CompletionStream:
    """Writes the events of one choice. ``prompt_token_ids`` is given where token ids were asked
    for and goes out with the first event, as vLLM does; ``running`` where every chunk is to tell
    the counts so far."""

    __slots__ = (
        "_after",
        "_before",
        "_prompt_token_ids",
        "_running",
        "_text_after",
        "_text_before",
        "_tokenizer",
        "_with_ids",
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        head: Head,
        index: int,
        prompt_token_ids: tuple[int, ...] | None,
        running: RunningUsage | None = None,
    ) -> None:
        self._running = running
        self._tokenizer = tokenizer
        before, after = head.around_choice(KIND, index)
        self._before, self._after = before, after
        self._text_before = before + b'"text":'
        self._text_after = b',"logprobs":null,"finish_reason":null' + after
        self._with_ids = prompt_token_ids is not None
        self._prompt_token_ids = prompt_token_ids

    def write(self, delta: Delta) -> bytes:
        """Empty when there is nothing to tell yet."""
        if self._running is not None:
            self._after = self._running.add(delta)
            self._text_after = b',"logprobs":null,"finish_reason":null' + self._after
        if delta.finish is None and delta.scored is None and not self._with_ids:
            if not delta.events:
                return b""
            return self._text_before + encode_line(delta.text) + self._text_after
        return self._full(delta)

    def _full(self, delta: Delta) -> bytes:
        scored = delta.scored
        tail: dict[str, Any] = {
            "logprobs": completion_logprobs(self._tokenizer, scored) if scored else None,
            "finish_reason": delta.finish.reason if delta.finish else None,
            "stop_reason": delta.finish.stop_reason if delta.finish else None,
        }
        if self._with_ids:
            tail["token_ids"] = delta.token_ids
            if self._prompt_token_ids is not None:
                tail["prompt_token_ids"] = self._prompt_token_ids
                self._prompt_token_ids = None
        rest = encode_line(tail)[1:-1]
        return self._text_before + encode_line(delta.text) + b"," + rest + self._after


def completion_choice(
    tokenizer: Tokenizer,
    index: int,
    answer: Answer,
    prompt_token_ids: tuple[int, ...] | None,
) -> dict[str, Any]:
    """One finished choice of a whole answer."""
    choice: dict[str, Any] = {
        "index": index,
        "text": answer.text,
        "logprobs": (
            None if answer.scored is None else completion_logprobs(tokenizer, answer.scored)
        ),
        "finish_reason": answer.finish.reason if answer.finish else None,
        "stop_reason": answer.finish.stop_reason if answer.finish else None,
    }
    if prompt_token_ids is not None:
        choice["token_ids"] = answer.token_ids
        choice["prompt_token_ids"] = prompt_token_ids
    return choice
