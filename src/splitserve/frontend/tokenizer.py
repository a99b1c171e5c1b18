"""The model's tokenizer: text to ids, ids to text and bytes."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Self

import tokenizers
from tokenizers import decoders

from splitserve.errors import ConfigError

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# Composing characters (NFC and the like) shortens UTF-8 text at most threefold.
_NORMALIZER_SHRINK: Final = 4
_CUT_MARGIN: Final = 64


class Tokenizer:
    """Wraps a ``tokenizers.Tokenizer``; safe to share between threads.

    ``add_bos`` says that a plain prompt begins with ``bos_token`` even where the tokenizer's own
    post-processor does not put it there.
    """

    def __init__(
        self, inner: tokenizers.Tokenizer, *, bos_token: str | None = None, add_bos: bool = False
    ) -> None:
        inner.no_truncation()
        inner.no_padding()
        self.inner: Final = inner
        self.vocab_size: Final = inner.get_vocab_size(with_added_tokens=True)
        added = inner.get_added_tokens_decoder()
        self.special_ids: Final = frozenset(key for key, token in added.items() if token.special)
        self.byte_level: Final = isinstance(inner.decoder, decoders.ByteLevel)
        self._bos = inner.token_to_id(bos_token) if bos_token is not None else None
        self._add_bos = add_bos
        self._adds_bos = self._bos in inner.encode("", add_special_tokens=True).ids[:1]
        self._bytes: dict[int, bytes] = {}
        self._whole: dict[frozenset[int], dict[int, str]] = {}
        self._around: Final = _around(inner)
        shrink = 1 if inner.normalizer is None else _NORMALIZER_SHRINK
        self._most_chars: Final = _longest_token(inner) * shrink

    @classmethod
    def load(cls, path: Path, *, bos_token: str | None = None, add_bos: bool = False) -> Self:
        """Reads a tokenizer.json. Raises ConfigError when it is none."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
        try:
            inner = tokenizers.Tokenizer.from_str(text)
        except Exception as error:
            # The library raises nothing narrower.
            raise ConfigError(f"{path} is no tokenizer.json: {error}") from error
        return cls(inner, bos_token=bos_token, add_bos=add_bos)

    def fewest_tokens(self, text: str) -> int:
        """A lower bound of ``text``'s length in tokens, found without tokenising it."""
        return self.fewest_tokens_of(len(text))

    def fewest_tokens_of(self, chars: int) -> int:
        """The fewest tokens that a text of so many characters can have."""
        return chars // self._most_chars

    def end_of(self, text: str, tokens: int, word_chars: int = 1) -> str:
        """An end of ``text`` that holds its last ``tokens`` tokens, however long each is;
        ``word_chars`` are the most that stand for one token in ``text`` alone."""
        # Where a text is cut, the first few tokens come out differently.
        return text[-(tokens + _CUT_MARGIN) * max(self._most_chars, word_chars) :]

    def encode_prompt(self, text: str, *, add_special: bool = True) -> tuple[int, ...]:
        """A plain prompt, with the beginning-of-sequence token exactly once if the model has one.

        Control tokens that ``text`` spells become control ids. Without ``add_special`` nothing is
        put around the text.
        """
        if not add_special:
            return self.encode_rendered(text)
        return self._bos_once(self.inner.encode(text, add_special_tokens=True).ids)

    def encode_rendered(self, text: str) -> tuple[int, ...]:
        """A text that has every control token already, so none is added; those that it spells
        become control ids."""
        return tuple(self.inner.encode(text, add_special_tokens=False).ids)

    def with_special(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """``ids`` of a text with what ``encode_prompt`` puts around one."""
        before, after = self._around
        return self._bos_once([*before, *ids, *after])

    def _bos_once(self, ids: list[int]) -> tuple[int, ...]:
        if self._bos is None:
            return tuple(ids)
        if self._adds_bos and ids[:2] == [self._bos, self._bos]:
            del ids[0]
        elif self._add_bos and ids[:1] != [self._bos]:
            ids.insert(0, self._bos)
        return tuple(ids)

    def token(self, token_id: int) -> str:
        """As the vocabulary spells it; empty for an id it does not have."""
        return self.inner.id_to_token(token_id) or ""

    def decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        """All of ``ids`` in one shot; ids outside the vocabulary count as nothing."""
        return self.inner.decode(ids, skip_special_tokens=skip_special)

    def token_bytes(self, token_id: int) -> bytes:
        """What this token alone adds to the middle of a text; may be part of a character."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._token_bytes(token_id)
        return found

    def ids_of(self, texts: Iterable[str]) -> frozenset[int]:
        """The special tokens among ``texts``."""
        ids = (self.inner.token_to_id(text) for text in texts)
        return frozenset(found for found in ids if found in self.special_ids)

    def skipped_ids(self, *, skip_special: bool, shown: frozenset[int]) -> frozenset[int]:
        """Ids that give no text; ``shown`` do, whatever they are."""
        return self.special_ids - shown if skip_special else frozenset()

    def whole_texts(self, skipped: frozenset[int]) -> dict[int, str]:
        """Texts of tokens that are whole characters wherever they stand, shared by all answers
        with the same ``skipped`` ids; filled by whoever decodes one for the first time."""
        return self._whole.setdefault(skipped, {})

    def _token_bytes(self, token_id: int) -> bytes:
        token = self.inner.id_to_token(token_id)
        if token is None:
            return b""
        if self.byte_level:
            return _byte_level(token)
        byte = _BYTE_TOKEN.fullmatch(token)
        if byte is not None:
            return bytes.fromhex(byte[1])
        # Decoders treat the start of a text apart, so the second of two equal tokens is looked at.
        once = self.decode([token_id], skip_special=False)
        twice = self.decode([token_id, token_id], skip_special=False)
        return twice.removeprefix(once).encode()


def _around(inner: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """What the post-processor puts before and after the ids of a text."""
    text = inner.encode("a", add_special_tokens=False).ids
    whole = inner.encode("a", add_special_tokens=True).ids
    for begin in range(len(whole) - len(text) + 1):
        if whole[begin : begin + len(text)] == text:
            return whole[:begin], whole[begin + len(text) :]
    return [], []


def _longest_token(inner: tokenizers.Tokenizer) -> int:
    names = (inner.id_to_token(i) for i in range(inner.get_vocab_size(with_added_tokens=True)))
    return max((len(name.encode()) for name in names if name), default=1)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins of the 256 bytes, as the ByteLevel decoder reads them.

    Printable bytes stand for themselves, the others for U+0100 and following, in order
    (openai/gpt-2, src/encoder.py, bytes_to_unicode).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return alphabet


_ALPHABET: Final = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    try:
        return bytes([_ALPHABET[char] for char in token])
    except KeyError:
        # The decoder passes a token that is not spelled in its alphabet as it is (added tokens).
        return token.encode()
