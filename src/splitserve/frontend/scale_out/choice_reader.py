"""One choice of a generate answer to Deltas, whole or in chunks."""

from collections.abc import Container
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from splitserve.errors import CallerError
from splitserve.frontend.derender.context import ParseContext
from splitserve.frontend.derender.events import Delta, Finish
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.derender.parsers.base import CallIds
from splitserve.frontend.derender.pipeline import Derenderer
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.ids import RequestId
from splitserve.protocol.generate import TokenChunk, TokenLogprob
from splitserve.protocol.sampling import MAX_LOGPROBS
from splitserve.protocol.scale_out import AnswerChoice, ChunkChoice, Logprobs, logprob_pairs

# Our chunks carry their request's id; a derenderer never looks at it.
_NOBODY: Final = RequestId("")
# A chosen token that is none of the likeliest comes beside them.
_MAX_CANDIDATES: Final = MAX_LOGPROBS + 1

Choice = AnswerChoice | ChunkChoice


class ChoiceReader:
    """State of one choice. A generate service only knows token ids, so stop strings, reasoning and
    calls are found here; what it said of the end is kept, unless a stop string ended the answer
    earlier or calls are why it ended.

    ``end_ids`` are the model's end-of-sequence ids, beside its special tokens. ``logprobs`` says
    whether every token must bring its log-probability.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        options: AnswerOptions,
        *,
        context: ParseContext,
        call_ids: CallIds,
        echo: str = "",
        end_ids: Container[int] = frozenset(),
    ) -> None:
        self._tokenizer = tokenizer
        self.logprobs = options.logprobs
        self._end_ids = end_ids
        self._derenderer = Derenderer(
            tokenizer, options, echo=echo, context=context, call_ids=call_ids
        )

    @property
    def ended(self) -> bool:
        """Whatever is fed now is not part of the answer."""
        return self._derenderer.finish is not None

    @property
    def tokens(self) -> int:
        """The answer's tokens so far, the one that ended it included."""
        return self._derenderer.tokens

    def feed(self, choice: Choice) -> Delta:
        """What ``choice`` adds; nothing once the answer has ended.

        ``choice`` has passed ``check_choice``, and has log-probabilities where the options say so.
        """
        if self.ended:
            return Delta()
        ids = choice.token_ids or ()
        silent = self._ends_silently(choice)
        delta = self._feed(ids, "stop" if silent else None, choice)
        if choice.finish_reason is not None and self._derenderer.finish is None:
            kind: Literal["stop", "length"] = "stop" if choice.finish_reason == "stop" else "length"
            delta = joined(delta, self._feed((), kind, None))
        return delta if delta.finish is None else _as_told(delta, delta.finish, choice)

    def close(self) -> Delta:
        """The text still held back, of an answer whose end nobody told."""
        if self.ended:
            return Delta()
        return msgspec.structs.replace(self._feed((), "length", None), finish=None)

    def state(self) -> Any:
        """A JSON value for ``restore``. Only before the end."""
        return self._derenderer.state()

    def restore(self, state: Any) -> None:
        """Raises ValueError, KeyError or TypeError for a value that ``state`` did not give."""
        self._derenderer.restore(state)

    def _feed(
        self,
        ids: tuple[int, ...],
        finish: Literal["stop", "length"] | None,
        choice: Choice | None,
    ) -> Delta:
        logprobs = choice.logprobs if choice is not None and self.logprobs else None
        return self._derenderer.feed(
            TokenChunk(
                _NOBODY,
                self._derenderer.tokens,
                ids,
                finish,
                logprobs=None if logprobs is None else _positions(logprobs),
            )
        )

    def _ends_silently(self, choice: Choice) -> bool:
        """Whether the last token is the one that ended the answer and not part of its text."""
        if choice.finish_reason != "stop" or not choice.token_ids:
            return False
        if isinstance(choice.stop_reason, str):
            return False
        last = choice.token_ids[-1]
        return (
            last == choice.stop_reason
            or last in self._end_ids
            or last in self._tokenizer.special_ids
        )


def joined(first: Delta, second: Delta) -> Delta:
    """Both as one."""
    scored = None
    if first.scored is not None or second.scored is not None:
        scored = (*(first.scored or ()), *(second.scored or ()))
    return Delta(
        events=(*first.events, *second.events),
        token_ids=(*first.token_ids, *second.token_ids),
        scored=scored,
        finish=second.finish,
    )


def brings_logprobs(choice: Choice) -> bool:
    return choice.logprobs is not None and choice.logprobs.content is not None


def with_logprobs_of(options: AnswerOptions, choice: Choice) -> AnswerOptions:
    """``options``, with log-probabilities if ``choice`` brings them."""
    return replace(options, logprobs=brings_logprobs(choice))


def check_choice(choice: Choice, room: int, param: str) -> None:
    """Raises CallerError when ``choice`` has more than ``room`` tokens or its log-probabilities are
    not one entry a token. ``param`` is where it stands in the body."""
    ids = choice.token_ids or ()
    if len(ids) > room:
        raise CallerError(
            f"'{param}.token_ids' has {len(ids)} tokens; the model's context has room for {room}",
            param=f"{param}.token_ids",
            code="context_length_exceeded",
        )
    if not brings_logprobs(choice):
        return
    content = choice.logprobs.content if choice.logprobs is not None else None
    if len(content or ()) != len(ids):
        raise CallerError(
            f"'{param}.logprobs.content' must have one entry a token ({len(ids)})",
            param=f"{param}.logprobs.content",
        )
    if any(len(position.top_logprobs) > _MAX_CANDIDATES for position in content or ()):
        raise CallerError(
            f"'{param}.logprobs.content': at most {MAX_LOGPROBS} 'top_logprobs' a token",
            param=f"{param}.logprobs.content",
        )


def _positions(logprobs: Logprobs) -> tuple[TokenLogprob, ...]:
    return tuple(
        [
            TokenLogprob(
                each.token_id, each.logprob, each.rank or 0, logprob_pairs(each.top_logprobs)
            )
            for each in logprobs.content or ()
        ]
    )


def _as_told(delta: Delta, finish: Finish, choice: Choice) -> Delta:
    """With the service's own words for the end where nothing here knows better."""
    reason = (choice.finish_reason or finish.reason) if finish.reason == "length" else finish.reason
    stop_reason = choice.stop_reason if finish.stop_reason is None else finish.stop_reason
    # Services have more reasons than OpenAI (vLLM: abort, repetition); they go through verbatim.
    return msgspec.structs.replace(delta, finish=Finish(reason, stop_reason))
