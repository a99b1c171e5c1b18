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
        self._max_token_bytes = _longest_token(inner)

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
        shrink = 1 if self.inner.normalizer is None else _NORMALIZER_SHRINK
        return len(text) // (self._max_token_bytes * shrink)

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """A plain prompt, with the beginning-of-sequence token exactly once if the model has one.

        Control tokens that ``text`` spells become control ids.
        """
        ids = self.inner.encode(text, add_special_tokens=True).ids
        if self._bos is None:
            return tuple(ids)
        if self._adds_bos and ids[:2] == [self._bos, self._bos]:
            del ids[0]
        elif self._add_bos and ids[:1] != [self._bos]:
            ids.insert(0, self._bos)
        return tuple(ids)

    def encode_rendered(self, text: str) -> tuple[int, ...]:
        """A rendered chat: the template has put every control token, so none is added.

        Control tokens that a message spells become control ids like the template's own: this is
        the one place that decides so.
        """
        return tuple(self.inner.encode(text, add_special_tokens=False).ids)

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
