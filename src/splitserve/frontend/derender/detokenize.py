"""Token ids to text, one at a time. The pieces joined are what decoding all ids at once gives.

No piece ends inside a character: bytes wait until their character is whole. What is left at the
end is given as U+FFFD, as a one-shot decode does.
"""

import codecs
from typing import Final, Protocol

from tokenizers.decoders import DecodeStream

from splitserve.frontend.tokenizer import Tokenizer

_INVALID_PREFIX: Final = "Invalid prefix"


class Detokenizer(Protocol):
    """State of one answer."""

    def feed(self, token_id: int) -> str:
        """The text this token completes; empty while a character is not whole."""
        ...

    def finish(self) -> str:
        """What is left. Nothing may be fed afterwards."""
        ...


def detokenizer(tokenizer: Tokenizer, *, skip_special: bool) -> Detokenizer:
    skipped = tokenizer.special_ids if skip_special else frozenset[int]()
    if tokenizer.byte_level:
        return _Bytes(tokenizer, skipped)
    return _Window(tokenizer, skipped)


class _Bytes:
    """For byte-level vocabularies: the text is the tokens' bytes, decoded as UTF-8."""

    def __init__(self, tokenizer: Tokenizer, skipped: frozenset[int]) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._skipped = skipped
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        return self._decode(self._token_bytes(token_id))

    def finish(self) -> str:
        return self._decode(b"", True)


class _Window:
    """For any other decoder: tokenizers' DecodeStream, which decodes a short window twice."""

    def __init__(self, tokenizer: Tokenizer, skipped: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._skipped = skipped
        self._stream = DecodeStream(skip_special_tokens=False)
        self._shown: list[int] = []
        self._held: list[int] = []

    def feed(self, token_id: int) -> str:
        # The stream keeps skipped tokens in its window, which then grows without end.
        if token_id in self._skipped:
            return ""
        self._held.append(token_id)
        text = self._step(token_id)
        if text is None:
            return ""
        self._shown, self._held = self._held, []
        return text

    def finish(self) -> str:
        return self._rest() if self._held else ""

    def _step(self, token_id: int) -> str | None:
        try:
            return self._stream.step(self._tokenizer.inner, token_id)
        except Exception as error:
            # The library raises nothing narrower. A byte that fits no character changed the text
            # of earlier bytes: the stream cannot go on, so a new one begins with this token.
            if _INVALID_PREFIX not in str(error):
                raise
            self._stream = DecodeStream(skip_special_tokens=False)
            self._stream.step(self._tokenizer.inner, token_id)
            return self._rest()

    def _rest(self) -> str:
        before = self._tokenizer.decode(self._shown, skip_special=False)
        text = self._tokenizer.decode(self._shown + self._held, skip_special=False)
        if text.startswith(before):
            return text[len(before) :]
        return self._tokenizer.decode(self._held, skip_special=False)
