"""Grammars in use, built once for the requests that share one."""

import json
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from llguidance import LLMatcher, LLTokenizer

from splitserve.engine.grammar.matcher import Endings, Matcher
from splitserve.errors import CallerError
from splitserve.protocol.sampling import StructuredOutputs
from splitserve.structured.grammars import build, grammar_of

MAX_GRAMMARS: Final = 32
"""Each holds what its lexer has learnt, up to about 20 MB where a grammar is made for that."""

PARAM: Final = "structured_outputs"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokenizer as the library sees it. ``special`` are texts and ids of control tokens."""

    tokenizer: LLTokenizer
    special: dict[str, int]


class Grammars:
    """Bounded, in memory only. Not thread-safe.

    ``tokenizer_json`` gives the text of tokenizer.json, or None; it is called once, when the first
    constrained request comes: reading a vocabulary of 49,000 takes a third of a second and 40 MB.
    """

    def __init__(
        self,
        tokenizer_json: Callable[[], str | None],
        vocab_size: int,
        eos_token_ids: Collection[int],
    ) -> None:
        self._tokenizer_json = tokenizer_json
        self._vocab_size = vocab_size
        self._eos = [token for token in eos_token_ids if 0 <= token < vocab_size]
        self._vocabulary: Vocabulary | None = None
        self._unusable = ""
        self._built: OrderedDict[StructuredOutputs, LLMatcher] = OrderedDict()

    @property
    def kept(self) -> int:
        """Grammars held now."""
        return len(self._built)

    def check(self, structured: StructuredOutputs) -> None:
        """Builds the grammar. Raises CallerError when it cannot be, or there is no tokenizer."""
        thoughts = (*structured.think_begin, *structured.think_end)
        if thoughts and not (min(thoughts) >= 0 and max(thoughts) < self._vocab_size):
            raise _refused("its think tokens are outside the vocabulary")
        if not structured.think_end and (structured.think_open or structured.think_begin):
            raise _refused("it begins after reasoning whose end is unknown")
        self._grammar(structured)

    def matcher(self, structured: StructuredOutputs, stops: Collection[int]) -> Matcher:
        """At the start of an answer; ``stops`` are the request's ids that end it.

        Raises CallerError as ``check`` does.
        """
        grammar = self._grammar(structured)
        # Of a model that names none, those that the library found in the tokenizer.
        eos = frozenset(self._eos or self._known_vocabulary().tokenizer.eos_tokens)
        endings = Endings(eos, frozenset(stops) - eos)
        # Copies share what their lexer learns.
        return Matcher(grammar.deep_copy, structured, endings, self._vocab_size)

    def forget(self, structured: StructuredOutputs) -> None:
        """Its lexer may be at its limit, which would end the next answer too."""
        self._built.pop(_key(structured), None)

    def _grammar(self, structured: StructuredOutputs) -> LLMatcher:
        key = _key(structured)
        found = self._built.get(key)
        if found is not None:
            self._built.move_to_end(key)
            return found
        vocabulary = self._known_vocabulary()
        try:
            grammar = build(vocabulary.tokenizer, grammar_of(structured, vocabulary.special))
        except CallerError as error:
            raise _refused(error.message) from None
        self._built[key] = grammar
        if len(self._built) > MAX_GRAMMARS:
            self._built.popitem(last=False)
        return grammar

    def _known_vocabulary(self) -> Vocabulary:
        if self._vocabulary is None and not self._unusable:
            self._load()
        if self._vocabulary is None:
            raise _refused(self._unusable)
        return self._vocabulary

    def _load(self) -> None:
        text = self._tokenizer_json()
        if text is None:
            self._unusable = "this engine has no tokenizer, which they need"
            return
        try:
            self._vocabulary = _read(text, self._vocab_size, self._eos)
        except ValueError as error:
            # The library's word for a tokenizer of a kind it does not know.
            self._unusable = f"this model's tokenizer cannot serve them: {error}"


def read_text(path: Path) -> str | None:
    """A model's tokenizer.json; None where there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _read(text: str, vocab_size: int, eos: list[int]) -> Vocabulary:
    """Raises ValueError for a text that is no tokenizer the library can use."""
    tokenizer = _tokenizer(text, vocab_size, eos or None)
    added = json.loads(text).get("added_tokens") or []
    special = {
        token["content"]: token["id"]
        for token in added
        if token.get("special") and token["id"] < vocab_size
    }
    return Vocabulary(tokenizer, special)


def _tokenizer(text: str, vocab_size: int, eos: list[int] | None) -> LLTokenizer:
    try:
        return LLTokenizer(text, n_vocab=vocab_size, eos_token=eos)
    except ValueError:
        # Some tokenizers have more ids than their model; the matcher cuts its masks.
        return LLTokenizer(text, eos_token=eos)


def _key(structured: StructuredOutputs) -> StructuredOutputs:
    """Requests that differ in their reasoning only share a grammar."""
    return msgspec.structs.replace(structured, think_begin=(), think_end=(), think_open=False)


def _refused(reason: str) -> CallerError:
    return CallerError(f"'{PARAM}': {reason}", param=PARAM)
