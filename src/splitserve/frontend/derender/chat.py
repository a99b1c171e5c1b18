"""Answers of POST /v1/chat/completions."""

from collections.abc import Sequence
from typing import Any, Final

from splitserve.frontend.derender.answer import Answer
from splitserve.frontend.derender.events import Delta
from splitserve.frontend.derender.head import Head, encode_json, encode_line
from splitserve.frontend.derender.logprobs import chat_logprobs
from splitserve.frontend.tokenizer import Tokenizer

KIND: Final = "chat.completion"
CHUNK_KIND: Final = "chat.completion.chunk"
_ROLE: Final = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'


class ChatStream:
    """Writes the events of one choice; the role goes out with the first of them.

    ``prompt_token_ids`` is given where token ids were asked for.
    """

    __slots__ = (
        "_after",
        "_before",
        "_opening",
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
    ) -> None:
        self._tokenizer = tokenizer
        before, after = head.around_choice(CHUNK_KIND, index)
        self._before, self._after = before, after
        self._text_before = before + b'"delta":{"content":'
        self._text_after = b'},"logprobs":null,"finish_reason":null' + after
        self._with_ids = prompt_token_ids is not None
        self._opening = before + _ROLE + self._prompt_field(prompt_token_ids) + after

    def write(self, delta: Delta) -> bytes:
        """Empty when there is nothing to tell yet."""
        if delta.finish is None and delta.scored is None and not self._with_ids:
            if not delta.events:
                return b""
            body = self._text_before + encode_line(delta.text) + self._text_after
        else:
            body = self._full(delta)
        if self._opening:
            body, self._opening = self._opening + body, b""
        return body

    def _full(self, delta: Delta) -> bytes:
        scored = delta.scored
        tail: dict[str, Any] = {
            "logprobs": chat_logprobs(self._tokenizer, scored) if scored else None,
            "finish_reason": delta.finish.reason if delta.finish else None,
            "stop_reason": delta.finish.stop_reason if delta.finish else None,
        }
        if self._with_ids:
            tail["token_ids"] = delta.token_ids
        text = b'{"content":' + encode_line(delta.text) + b"}" if delta.events else b"{}"
        rest = encode_line(tail)[1:-1]
        return self._before + b'"delta":' + text + b"," + rest + self._after

    @staticmethod
    def _prompt_field(prompt_token_ids: tuple[int, ...] | None) -> bytes:
        if prompt_token_ids is None:
            return b""
        return b',"prompt_token_ids":' + encode_json(prompt_token_ids)


def chat_choice(
    tokenizer: Tokenizer,
    index: int,
    answer: Answer,
    prompt_token_ids: tuple[int, ...] | None,
) -> dict[str, Any]:
    """One finished choice of a whole answer."""
    choice: dict[str, Any] = {
        "index": index,
        "message": {"role": "assistant", "content": answer.text, "refusal": None},
        "logprobs": None if answer.scored is None else chat_logprobs(tokenizer, answer.scored),
        "finish_reason": answer.finish.reason if answer.finish else None,
        "stop_reason": answer.finish.stop_reason if answer.finish else None,
    }
    if prompt_token_ids is not None:
        choice["token_ids"] = answer.token_ids
        choice["prompt_token_ids"] = prompt_token_ids
    return choice


def chat_body(head: Head, choices: Sequence[dict[str, Any]], usage: dict[str, Any]) -> bytes:
    """The whole answer's body."""
    return encode_json({**head.fields(KIND), "choices": choices, "usage": usage})
