"""Tells the control tokens that a chat template writes from text that only spells them.

    1. seal the template's own source: each control token in it becomes a word nobody can guess
    2. render: what the template writes is sealed, what a client typed is not, wherever it ends up
    3. encode: a sealed word becomes its control id, everything else is text

So a client's ``<|im_end|>`` is characters to the model, also where its halves come from two
messages, and no string of a client is changed on its way through the template.
"""

import re
import secrets
from typing import Final

import tokenizers
from tokenizers import AddedToken

from splitserve.errors import CallerError
from splitserve.frontend.tokenizer import Tokenizer

_SHORTEST_CONTROL: Final = 3
_NO_ID: Final = 2**63
_SPACES: Final = " \t\r\n\u2581"
_MARKUP: Final = re.compile(r"<.*>|\[.*\]|.*[|\uff5c].*", re.DOTALL)
# Gemma has them as tokens, and they are the text of many a user.
_HTML: Final = re.compile(
    r"</?(?:a|b|big|blockquote|body|br|caption|code|div|em|font|form|h[1-6r]|head|html|i|img|input"
    r"|li|ol|p|pre|s|script|small|span|strong|style|sub|sup|t(?:able|body|d|foot|h|head|r|t)|u|ul)>"
)


class Seals:
    """The control tokens of ``tokenizer``, as the template ``source`` uses them; safe to share.

    A control token is a special token, or any added token whose text has the look of markup
    (``<think>``). Others are words of the vocabulary: runs of spaces, HTML tags, whatever a model's
    makers added.
    """

    def __init__(self, tokenizer: Tokenizer, source: str) -> None:
        self._tokenizer: Final = tokenizer
        added = tokenizer.inner.get_added_tokens_decoder()
        controls = [token for token in added.values() if _is_control(token)]
        # Letters and digits only, so that a word comes out of any filter as it went in.
        self._secret: Final = f"x{secrets.token_hex(8)}"
        texts = [token.content for token in controls]
        self._words: Final = {text: f"{self._secret}{n:04x}x" for n, text in enumerate(texts)}
        self._texts: Final = {word: text for text, word in self._words.items()}
        self._word_chars: Final = len(self._secret) + 5
        self._sealed: Final = re.compile(f"{self._secret}[0-9a-f]{{4}}x")
        self._spelled: Final = _any_of(texts)
        # Reasoning and calls that an assistant's message holds as text are the model's own.
        self._structure: Final = _any_of(
            [t.content for t in controls if not t.special and t.content in source]
        )
        self._twin, self._ids = self._make_twin(added)
        self._first: Final = min(self._ids, default=_NO_ID)
        self._unwritable: Final = _any_of([text for text in texts if not self._is_text(text)])

    def seal(self, text: str) -> str:
        """Every control token that ``text`` spells is a genuine one."""
        return self._sealing(self._spelled, text)

    def seal_structure(self, text: str) -> str:
        """As ``seal``, for the markers of reasoning and tool calls alone, not special tokens."""
        return self._sealing(self._structure, text)

    def unseal(self, text: str) -> str:
        """The text that ``seal`` was given."""
        return self._sealed.sub(self._text_of, text)

    def genuine(self, text: str) -> str:
        """As ``unseal``, without the control tokens that are only spelled."""
        return self.unseal(text if self._spelled is None else self._spelled.sub("", text))

    def spelled(self, text: str) -> frozenset[str]:
        """The control tokens that ``text`` spells without a seal."""
        return frozenset() if self._spelled is None else frozenset(self._spelled.findall(text))

    def word(self, control: str) -> str:
        """The sealed form of one control token."""
        return self._words[control]

    def fewest_tokens(self, text: str) -> int:
        """A lower bound of ``text``'s length in tokens, found without tokenising it."""
        seals = text.count(self._secret)
        return seals + self._tokenizer.fewest_tokens_of(len(text) - seals * self._word_chars)

    def end_of(self, text: str, tokens: int) -> str:
        """As ``Tokenizer.end_of``, of sealed text."""
        return self._tokenizer.end_of(text, tokens, self._word_chars)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a rendered prompt. Text without a spelled control token gives the very ids that
        the tokenizer gives for it unsealed.

        Raises CallerError for text that this tokenizer cannot write but as a control token.
        """
        if self._unwritable is not None and (found := self._unwritable.search(text)):
            raise CallerError(
                f"'messages': this model's tokenizer cannot take {found[0]!r:.64} as plain text",
                param="messages",
            )
        ids = self._twin.encode(text, add_special_tokens=False).ids
        first, genuine = self._first, self._ids
        return tuple([one if one < first else genuine.get(one, one) for one in ids])

    def _sealing(self, controls: re.Pattern[str] | None, text: str) -> str:
        return text if controls is None else controls.sub(self._word_of, text)

    def _word_of(self, found: re.Match[str]) -> str:
        return self._words[found[0]]

    def _text_of(self, found: re.Match[str]) -> str:
        # A client may have guessed the form of a word, but not one of ours.
        return self._texts.get(found[0], found[0])

    def _make_twin(
        self, added: dict[int, AddedToken]
    ) -> tuple[tokenizers.Tokenizer, dict[int, int]]:
        """A tokenizer around the same model, in which sealed words stand for the control tokens;
        with the original id of each id beyond the model's own vocabulary."""
        inner = self._tokenizer.inner
        twin = tokenizers.Tokenizer(inner.model)
        if inner.normalizer is not None:
            twin.normalizer = inner.normalizer
        if inner.pre_tokenizer is not None:
            twin.pre_tokenizer = inner.pre_tokenizer
        twin.add_tokens(self._fillers(len(added)))
        twin.add_tokens([_named(t, self._words.get(t.content, t.content)) for t in added.values()])
        names = {self._words.get(t.content, t.content): original for original, t in added.items()}
        vocabulary = inner.model
        return twin, {
            one: original
            for name, original in names.items()
            if (one := twin.token_to_id(name)) is not None and vocabulary.token_to_id(name) is None
        }

    def _fillers(self, wanted: int) -> list[str]:
        """Take the ids that the library would give to the twin's tokens although the model's own
        vocabulary, which may have holes, reaches beyond its size."""
        inner = self._tokenizer.inner
        size = inner.get_vocab_size(with_added_tokens=False)
        if all(inner.model.id_to_token(size + place) is None for place in range(wanted)):
            return []
        beyond = max(inner.get_vocab(with_added_tokens=False).values()) + 1 - size
        return [f"{self._secret}{place}" for place in range(beyond)]

    def _is_text(self, text: str) -> bool:
        """Whether the model itself, asked for text, gives anything but the control token."""
        control = self._tokenizer.inner.model.token_to_id(text)
        return control is None or all(
            control not in self._twin.encode(one, add_special_tokens=False).ids
            for one in (text, f"a{text}b", f" {text} ")
        )


def _is_control(token: AddedToken) -> bool:
    text = token.content
    # A word may stand in a template in places that are no text of the prompt.
    if len(text) < _SHORTEST_CONTROL or text[0].isalnum() or text[-1].isalnum():
        return False
    if token.special:
        return bool(text.strip(_SPACES))
    return _MARKUP.fullmatch(text) is not None and _HTML.fullmatch(text) is None


def _named(token: AddedToken, content: str) -> AddedToken:
    return AddedToken(
        content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=token.special,
    )


def _any_of(texts: list[str]) -> re.Pattern[str] | None:
    """Matches the longest of ``texts``; None where there are none."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None
