"""Token ids to text, one at a time. The pieces joined are what decoding all ids at once gives.

No piece ends inside a character: bytes wait until their character is whole. What is left at the
end is given as U+FFFD, as a one-shot decode does.
"""

import codecs
from typing import Any, Final, Protocol

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

    def state(self) -> Any:
        """A small JSON value of which ``restore`` makes an equal one."""
        ...

    def restore(self, state: Any) -> None:
        """Goes on from ``state``. Raises ValueError, KeyError or TypeError for what is none."""
        ...


def detokenizer(
    tokenizer: Tokenizer, *, skip_special: bool, shown: frozenset[int] = frozenset()
) -> Detokenizer:
    """``shown`` are special tokens that give text although special tokens are skipped."""
    skipped = tokenizer.skipped_ids(skip_special=skip_special, shown=shown)
    if tokenizer.byte_level:
        return _Bytes(tokenizer, skipped)
    return _Window(tokenizer, skipped)


class _Bytes:
    """For byte-level vocabularies: the text is the tokens' bytes, decoded as UTF-8.

    Most tokens are whole characters, whose text is looked up; the decoder is only used from a
    token that is not to the one that completes its last character.
    """

    __slots__ = ("_decoder", "_partial", "_skipped", "_tokenizer", "_whole")

    def __init__(self, tokenizer: Tokenizer, skipped: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._whole = tokenizer.whole_texts(skipped)
        self._skipped = skipped
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = False

    def feed(self, token_id: int) -> str:
        text = self._whole.get(token_id)
        if text is not None and not self._partial:
            return text
        return self._feed(token_id)

    def finish(self) -> str:
        return self._decoder.decode(b"", True)

    def state(self) -> Any:
        return self._decoder.getstate()[0].hex()

    def restore(self, state: Any) -> None:
        pending = bytes.fromhex(state)
        self._decoder.setstate((pending, 0))
        self._partial = bool(pending)

    def _feed(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        raw = self._tokenizer.token_bytes(token_id)
        text = self._decoder.decode(raw)
        begun_within, self._partial = self._partial, bool(self._decoder.getstate()[0])
        if not begun_within and not self._partial and "\ufffd" not in text:
            self._whole[token_id] = text
        return text


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

    def state(self) -> Any:
        return [self._shown, self._held]

    def restore(self, state: Any) -> None:
        shown, held = state
        self._shown, self._held = [int(token) for token in shown], [int(token) for token in held]
        self._stream = DecodeStream(skip_special_tokens=False)
        for token_id in (*self._shown, *self._held):
            self._stream.step(self._tokenizer.inner, token_id)

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
