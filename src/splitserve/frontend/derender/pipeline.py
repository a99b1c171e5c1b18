"""TokenChunks of one answer to Deltas."""

from collections.abc import Sequence
from typing import Any, Final

from splitserve.errors import PeerError
from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.context import ParseContext, build_parser
from splitserve.frontend.derender.detokenize import detokenizer
from splitserve.frontend.derender.events import (
    Delta,
    Event,
    Finish,
    ReasoningDelta,
    Scored,
    TextDelta,
    ToolArguments,
    ToolCall,
)
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.parsers.base import CallIds, Quiet
from splitserve.frontend.derender.stops import StopMatcher
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.generate import TokenChunk, TokenLogprob

PLAIN: Final = ParseContext()


class Derenderer:
    """State of one answer. ``echo`` is text to give before the answer's own.

    ``context`` says which parsers read the answer; ``call_ids`` names its tool calls.
    ``tokens`` counts the answer's tokens so far, the one that ended it included;
    ``cached_tokens`` is what the worker said of the prompt, None until it did.
    """

    __slots__ = (
        "_called",
        "_context",
        "_detokenizer",
        "_echo",
        "_keeps_all",
        "_offset",
        "_options",
        "_parser",
        "_plain",
        "_quiet",
        "_stops",
        "cached_tokens",
        "finish",
        "tokens",
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        options: AnswerOptions,
        *,
        echo: str = "",
        context: ParseContext = PLAIN,
        call_ids: CallIds | None = None,
    ) -> None:
        self._options = options
        self._context = context
        self._parser = build_parser(context, call_ids or new_call_ids()) if context.parses else None
        self._detokenizer = detokenizer(
            tokenizer,
            skip_special=options.skip_special_tokens,
            shown=tokenizer.ids_of(context.markers) if context.parses else frozenset(),
        )
        self._stops = StopMatcher(options.stop, include_stop=options.include_stop)
        self._echo = echo
        self._offset = len(echo)
        # Most tokens come alone, with nothing to search in their text and nothing to tell of them:
        # a shorter way for those, with the same result.
        self._plain = not (options.stop or options.logprobs)
        self._keeps_all = options.reasoning and context.parallel
        # Only where every event is wanted as it comes.
        self._quiet: Quiet | None = None
        self._called = False
        self.tokens = 0
        self.cached_tokens: int | None = None
        self.finish: Finish | None = None

    @property
    def stopped_by_text(self) -> bool:
        """A stop string ended the answer, of which the worker knows nothing."""
        return self._stops.matched is not None

    def feed(self, chunk: TokenChunk) -> Delta:
        """What ``chunk`` adds. Nothing may be fed after a delta with ``finish``.

        Raises PeerError when tokens or log-probabilities are missing or the worker gave up:
        an answer with a hole must not look like an answer.
        """
        if (
            self._plain
            and chunk.index == self.tokens
            and chunk.finish_reason is None
            and chunk.cached_tokens is None
            and len(chunk.token_ids) == 1
        ):
            self.tokens += 1
            return Delta(self._events(self._detokenizer.feed(chunk.token_ids[0])), chunk.token_ids)
        return self._feed(chunk)

    def _feed(self, chunk: TokenChunk) -> Delta:
        self._check(chunk)
        if chunk.cached_tokens is not None:
            self.cached_tokens = chunk.cached_tokens
        begin = self.tokens
        logprobs = chunk.logprobs if self._options.logprobs else None
        scored: list[Scored] = []
        pieces: list[str] = []
        silent = self._silent_token(chunk)
        for place, token_id in enumerate(chunk.token_ids):
            if logprobs is not None:
                scored.append(_scored(logprobs[place], self._offset))
            self.tokens += 1
            if place != silent:
                pieces.append(self._visible(self._detokenizer.feed(token_id)))
            if self._stops.matched is not None:
                break
        ended = self._ended(chunk, pieces)
        events = self._events("".join(pieces))
        if ended:
            if self._parser is not None:
                events = (*events, *self._kept(self._parser.finish()))
            self.finish = self._finish_of(chunk)
        return Delta(
            events=events,
            token_ids=chunk.token_ids[: self.tokens - begin],
            scored=None if logprobs is None else tuple(scored),
            finish=self.finish,
        )

    def state(self) -> Any:
        """A JSON value of which ``restore`` makes an equal one; options and context are not in it.

        Bounded by what is held back, not by the answer's length.
        """
        return [
            self.tokens,
            self._offset,
            self._echo,
            self._called,
            self._detokenizer.state(),
            self._stops.state(),
            None if self._parser is None else self._parser.state(),
        ]

    def restore(self, state: Any) -> None:
        """Goes on from ``state``, with equal options and context.

        Raises ValueError, KeyError or TypeError for a value that ``state`` did not give.
        """
        tokens, offset, echo, called, detokenizer, stops, parser = state
        self.tokens, self._offset = int(tokens), int(offset)
        self._echo, self._called = str(echo), bool(called)
        self._detokenizer.restore(detokenizer)
        self._stops.restore(stops)
        if self._parser is not None:
            self._parser.restore(parser)
            self._quiet = None

    def _check(self, chunk: TokenChunk) -> None:
        if chunk.index != self.tokens or self.finish is not None:
            raise PeerError(f"token {self.tokens} was expected, token {chunk.index} came")
        if chunk.finish_reason == "abort":
            raise PeerError("the worker gave the answer up")
        if self._options.logprobs and len(chunk.logprobs or ()) != len(chunk.token_ids):
            raise PeerError("the worker sent tokens without their log-probabilities")

    def _silent_token(self, chunk: TokenChunk) -> int:
        """The place of the token that ended the answer and is not part of its text, or -1."""
        if chunk.finish_reason == "stop" and not self._options.include_stop:
            return len(chunk.token_ids) - 1
        return -1

    def _visible(self, text: str) -> str:
        self._offset += len(text)
        if self.tokens <= self._options.min_tokens:
            return text
        return self._stops.feed(text)

    def _ended(self, chunk: TokenChunk, pieces: list[str]) -> bool:
        """Whether the answer is over; adds the text that was held back."""
        if self._stops.matched is None and chunk.finish_reason is None:
            return False
        self._plain = False
        if self._stops.matched is None:
            pieces.append(self._visible(self._detokenizer.finish()))
        if self._stops.matched is None:
            pieces.append(self._stops.finish())
        return True

    def _finish_of(self, chunk: TokenChunk) -> Finish:
        stop_reason = self._stops.matched or chunk.stop_reason
        if self._stops.matched is None and chunk.finish_reason == "length":
            return Finish("length", chunk.stop_reason)
        # OpenAI: a call that the client named is no choice of the model's.
        calls = self._called and self._context.choice != "named"
        return Finish("tool_calls" if calls else "stop", stop_reason)

    def _events(self, text: str) -> tuple[Event, ...]:
        if self._echo:
            text, self._echo = self._echo + text, ""
        if not text:
            return ()
        if self._parser is None:
            return (TextDelta(text),)
        quiet = self._quiet
        if quiet is not None and quiet.matches(text) is not None:
            return (quiet.event(text),)
        events = self._kept(self._parser.feed(text))
        if self._keeps_all:
            self._quiet = self._parser.quiet()
        return events

    def _kept(self, events: Sequence[Event]) -> tuple[Event, ...]:
        """Without what the client does not want."""
        if not self._called:
            self._called = any(type(event) is ToolCall for event in events)
        if self._keeps_all:
            return tuple(events)
        return tuple([event for event in events if self._wanted(event)])

    def _wanted(self, event: Event) -> bool:
        if isinstance(event, ToolCall | ToolArguments):
            return self._context.parallel or event.index == 0
        return self._options.reasoning or type(event) is not ReasoningDelta


def _scored(logprob: TokenLogprob, offset: int) -> Scored:
    return Scored(logprob.token_id, logprob.logprob, logprob.rank, logprob.top, offset)
