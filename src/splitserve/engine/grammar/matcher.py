"""Follows one answer through its grammar.

    opening -> reasoning -> grammar -> done
            -> grammar   -> done

All of it is a function of the output tokens, so a sequence that is continued elsewhere or computed
again is held to the same.
"""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from llguidance import LLMatcher

from splitserve.clock import Clock
from splitserve.errors import CallerError
from splitserve.protocol.sampling import StructuredOutputs
from splitserve.structured.grammars import reason_of

TOKEN_S: Final = 0.02
"""What the grammar may take of the processor for each token, in seconds. Every other answer of the
same step waits for it; a schema takes a thousandth of it."""

EXCESS_S: Final = 1.0
"""What one answer may take beyond that: parsers of ambiguous grammars are slower at every token."""


@dataclass(frozen=True, slots=True)
class Endings:
    """Ids that may end an answer whose grammar is fulfilled: the model's own and the request's."""

    eos: frozenset[int]
    stops: frozenset[int]


class Matcher:
    """``start`` gives the grammar at its beginning; masks cover ``vocab_size`` ids.

    ``cpu_clock`` tells the seconds of processor time that this thread has taken.
    """

    def __init__(
        self,
        start: Callable[[], LLMatcher],
        structured: StructuredOutputs,
        endings: Endings,
        vocab_size: int,
        cpu_clock: Clock = time.thread_time,
    ) -> None:
        self._start: Final = start
        self._cpu_clock: Final = cpu_clock
        self._excess_s = 0.0
        self._endings: Final = endings
        self._mask_bytes: Final = -(-vocab_size // 8)
        self._all: Final = (1 << vocab_size) - 1
        self._begin: Final = () if structured.think_open else structured.think_begin
        self._end: Final = structured.think_end
        self._opened = 0
        """Tokens of ``think_begin`` that the answer consists of; -1 when it is past that."""
        self._reasoning = structured.think_open
        self._recent: list[int] = []
        self._grammar: LLMatcher | None = None if structured.think_open else start()
        self._error = ""
        if not self._begin:
            self._opened = -1
        self.count = 0
        """Output tokens taken in so far."""
        self.done = False
        """The grammar is fulfilled and the answer has ended."""

    def mask(self, avoid: Collection[int] = ()) -> bytes | None:
        """Which ids may come next, None for all. ``avoid`` ids only where nothing else may.

        Raises CallerError when the answer cannot go on: the grammar took more work than one answer
        may take, or the tokens so far do not conform to it.
        """
        if self._reasoning:
            return None
        began_s = self._cpu_clock()
        allowed = self._allowed()
        self._account(began_s, 0.0)
        if self._excess_s > EXCESS_S:
            raise CallerError("the grammar takes too long to follow")
        if self._opened >= 0:
            allowed |= 1 << self._begin[self._opened]
        kept = allowed & ~_bits(avoid) if avoid else allowed
        chosen = kept or allowed
        if not chosen:
            raise CallerError(self._error or "the grammar leads nowhere")
        return chosen.to_bytes(self._mask_bytes, "little")

    def accept(self, token: int) -> None:
        """Takes in the next output token. What is wrong with it shows in the next ``mask``."""
        self.count += 1
        began_s = self._cpu_clock()
        self._take(token)
        self._account(began_s, TOKEN_S)

    def _account(self, began_s: float, allowance_s: float) -> None:
        spent_s = self._cpu_clock() - began_s
        self._excess_s = max(0.0, self._excess_s + spent_s - allowance_s)

    def _take(self, token: int) -> None:
        if self._reasoning:
            self._reason(token)
        elif self._opened >= 0:
            self._open(token)
        elif not self.done:
            self._follow(token)

    def _allowed(self) -> int:
        grammar = self._grammar
        if grammar is None:
            return 0
        mask = int.from_bytes(grammar.compute_bitmask(), "little")
        if grammar.is_error():
            self._fail(grammar)
            return 0
        endings = self._endings
        if endings.stops and grammar.is_accepting():
            mask |= _bits(endings.stops)
        # The tokenizer may have ids beyond the model's.
        return mask & self._all

    def _open(self, token: int) -> None:
        """As long as both are possible, the answer may open its reasoning or be the grammar's."""
        if token != self._begin[self._opened]:
            self._opened = -1
            self._follow(token)
            return
        self._opened += 1
        if self._opened == len(self._begin):
            self._opened = -1
            self._reasoning = True
            self._grammar = None
        elif self._grammar is not None:
            if self._grammar.validate_tokens([token]) == 1:
                self._follow(token)
            else:
                self._grammar = None

    def _reason(self, token: int) -> None:
        self._recent = [*self._recent, token][-len(self._end) :]
        if tuple(self._recent) == self._end:
            self._reasoning = False
            self._grammar = self._start()

    def _follow(self, token: int) -> None:
        grammar, endings = self._grammar, self._endings
        if grammar is None:
            self._error = self._error or "the tokens so far do not conform to the grammar"
            return
        if token in endings.eos or token in endings.stops:
            is_text = token not in endings.eos and grammar.validate_tokens([token]) == 1
            if not is_text and grammar.is_accepting():
                self.done = True
                return
        if not grammar.consume_token(token):
            self._fail(grammar)

    def _fail(self, grammar: LLMatcher) -> None:
        self._error = reason_of(grammar.get_error())
        self._grammar = None


def _bits(ids: Iterable[int]) -> int:
    bits = 0
    for token in ids:
        bits |= 1 << token
    return bits
