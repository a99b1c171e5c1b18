"""TokenChunks of one answer to Deltas."""

from splitserve.errors import PeerError
from splitserve.frontend.derender.detokenize import detokenizer
from splitserve.frontend.derender.events import Delta, Event, Finish, Scored, TextDelta
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.stops import StopMatcher
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.generate import TokenChunk, TokenLogprob


class Derenderer:
    """State of one answer. ``echo`` is text to give before the answer's own.

    ``tokens`` counts the answer's tokens so far, the one that ended it included;
    ``cached_tokens`` is what the worker said of the prompt, None until it did.
    """

    __slots__ = (
        "_detokenizer",
        "_echo",
        "_offset",
        "_options",
        "_plain",
        "_stops",
        "cached_tokens",
        "finish",
        "tokens",
    )

    def __init__(self, tokenizer: Tokenizer, options: AnswerOptions, *, echo: str = "") -> None:
        self._options = options
        self._detokenizer = detokenizer(tokenizer, skip_special=options.skip_special_tokens)
        self._stops = StopMatcher(options.stop, include_stop=options.include_stop)
        self._echo = echo
        self._offset = len(echo)
        # Most tokens come alone, with nothing to search in their text and nothing to tell of them:
        # a shorter way for those, with the same result.
        self._plain = not (options.stop or options.logprobs)
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
        finish = self._finish(chunk, pieces)
        return Delta(
            events=self._events("".join(pieces)),
            token_ids=chunk.token_ids[: self.tokens - begin],
            scored=None if logprobs is None else tuple(scored),
            finish=finish,
        )

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

    def _finish(self, chunk: TokenChunk, pieces: list[str]) -> Finish | None:
        if self._stops.matched is None and chunk.finish_reason is None:
            return None
        self._plain = False
        if self._stops.matched is None:
            pieces.append(self._visible(self._detokenizer.finish()))
        if self._stops.matched is not None:
            self.finish = Finish("stop", self._stops.matched)
        else:
            pieces.append(self._stops.finish())
            by_length = chunk.finish_reason == "length"
            self.finish = Finish("length" if by_length else "stop", chunk.stop_reason)
        return self.finish

    def _events(self, text: str) -> tuple[Event, ...]:
        """Where a parser of reasoning or tool calls takes its place: text in, events out."""
        if self._echo:
            text, self._echo = self._echo + text, ""
        return (TextDelta(text),) if text else ()


def _scored(logprob: TokenLogprob, offset: int) -> Scored:
    return Scored(logprob.token_id, logprob.logprob, logprob.top, offset)
