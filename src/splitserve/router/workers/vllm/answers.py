"""What vLLM answers, as chunks of token ids. Pure.

One set of names reads both endpoints: ``/inference/v1/generate`` and ``/v1/completions`` with
``return_token_ids`` and ``return_tokens_as_token_ids``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from splitserve.ids import RequestId
from splitserve.protocol.control import Began
from splitserve.protocol.generate import FinishReason, TokenChunk, TokenLogprob
from splitserve.protocol.scale_out import PositionLogprobs, Usage
from splitserve.router.workers.vllm.failure import ErrorBody, LegFailed, broken

UNKNOWN_RANK: Final = 0
"""``/v1/completions`` does not tell the place of a token that is not among the likeliest."""

_NO_LOGPROB: Final = -9999.0
"""vLLM's own floor."""

_TOKEN: Final = "token_id:"

_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "repetition": "stop",
}


class WireLogprobs(msgspec.Struct, frozen=True):
    """``content`` comes from generate, the rest from completions."""

    content: tuple[PositionLogprobs, ...] | None = None
    tokens: tuple[str, ...] = ()
    token_logprobs: tuple[float | None, ...] = ()
    top_logprobs: tuple[dict[str, float] | None, ...] = ()


class WireChoice(msgspec.Struct, frozen=True):
    token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: WireLogprobs | None = None


class WireMetrics(msgspec.Struct, frozen=True):
    """Of vLLM's ``--enable-per-request-metrics``."""

    queue_time_ms: float | None = None
    time_to_first_token_ms: float | None = None


class Event(msgspec.Struct, frozen=True):
    """One event of a stream, or a whole answer."""

    choices: tuple[WireChoice, ...] = ()
    usage: Usage | None = None
    error: ErrorBody | None = None
    kv_transfer_params: dict[str, Any] | None = None
    metrics: WireMetrics | None = None

    @property
    def cached_tokens(self) -> int | None:
        return None if self.usage is None else self.usage.cached_tokens


def began(request_id: RequestId, event: Event | None, call_s: float | None = None) -> Began:
    """What ``event``, if any, tells of the time to the first token; ``call_s`` as in Began."""
    metrics = None if event is None else event.metrics
    if metrics is None:
        return Began(request_id, call_s=call_s)
    queue_s, first_s = _seconds(metrics.queue_time_ms), _seconds(metrics.time_to_first_token_ms)
    return Began(request_id, queue_s, first_s, call_s)


def _seconds(told_ms: float | None) -> float | None:
    return None if told_ms is None else told_ms / 1000


_DECODER: Final = msgspec.json.Decoder(Event)


def read(data: bytes) -> Event:
    """Raises LegFailed for what is no event, and for one that tells an error."""
    try:
        event = _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise LegFailed("engine", f"vLLM's answer cannot be read: {error}") from None
    if event.error is not None:
        raise broken(event.error)
    return event


class AnswerReader:
    """Turns the events of one answer into chunks. ``index`` is the output position of its first
    token; ``top`` is how many alternatives were asked for, None for no logprobs."""

    __slots__ = ("_index", "_request_id", "_top", "finished")

    def __init__(self, request_id: RequestId, index: int, top: int | None) -> None:
        self._request_id = request_id
        self._index = index
        self._top = top
        self.finished = False

    def chunk(self, event: Event) -> TokenChunk | None:
        """None for an event without news. Raises LegFailed when the answer ended in failure."""
        if not event.choices:
            return None
        choice = event.choices[0]
        tokens, said = choice.token_ids or (), choice.finish_reason
        if not tokens and said is None:
            return None
        reason = None if said is None else finish_reason(said)
        self.finished = reason is not None
        chunk = TokenChunk(
            self._request_id,
            self._index,
            tokens,
            reason,
            choice.stop_reason if isinstance(choice.stop_reason, int) else None,
            None if self._top is None else _logprobs(tokens, choice.logprobs, self._top),
        )
        self._index += len(tokens)
        return chunk


def finish_reason(said: str) -> FinishReason:
    """Raises LegFailed for ``abort``, ``error`` and whatever else is no end of an answer."""
    known = _REASONS.get(said)
    if known is None:
        code = "aborted" if said == "abort" else "engine"
        raise LegFailed(code, f"vLLM ended the answer with {said!r}")
    return known


def split_first(chunk: TokenChunk) -> tuple[TokenChunk, TokenChunk | None]:
    """The first token alone, and what is left after it. ``chunk`` has at least one token."""
    if len(chunk.token_ids) == 1:
        return chunk, None
    logprobs = chunk.logprobs
    first = msgspec.structs.replace(
        chunk,
        token_ids=chunk.token_ids[:1],
        logprobs=None if logprobs is None else logprobs[:1],
        finish_reason=None,
        stop_reason=None,
    )
    rest = msgspec.structs.replace(
        chunk,
        index=chunk.index + 1,
        token_ids=chunk.token_ids[1:],
        logprobs=None if logprobs is None else logprobs[1:],
        cached_tokens=None,
    )
    return first, rest


def _logprobs(
    tokens: Sequence[int], wire: WireLogprobs | None, top: int
) -> tuple[TokenLogprob, ...]:
    if wire is None:
        return tuple(TokenLogprob(token, _NO_LOGPROB, UNKNOWN_RANK) for token in tokens)
    if wire.content is not None:
        return tuple(_of_generate(each, top) for each in wire.content)
    return tuple(_of_completions(token, wire, i, top) for i, token in enumerate(tokens))


def _of_generate(position: PositionLogprobs, top: int) -> TokenLogprob:
    candidates = [(each.token_id, each.logprob) for each in position.top_logprobs]
    rank = position.rank or UNKNOWN_RANK
    return TokenLogprob(position.token_id, position.logprob, rank, _likeliest(candidates, top))


def _of_completions(token: int, wire: WireLogprobs, i: int, top: int) -> TokenLogprob:
    candidates = [
        (int(name.removeprefix(_TOKEN)), logprob)
        for name, logprob in (
            (wire.top_logprobs[i] or {}) if i < len(wire.top_logprobs) else {}
        ).items()
        if name.startswith(_TOKEN)
    ]
    chosen = wire.token_logprobs[i] if i < len(wire.token_logprobs) else None
    likeliest = _likeliest(candidates, max(top, 1))
    rank = next((at for at, each in enumerate(likeliest, 1) if each[0] == token), UNKNOWN_RANK)
    known = top > 0  # with none asked for, the one candidate is the chosen token itself
    return TokenLogprob(
        token,
        _NO_LOGPROB if chosen is None else chosen,
        rank if known else UNKNOWN_RANK,
        likeliest[:top],
    )


def _likeliest(candidates: list[tuple[int, float]], top: int) -> tuple[tuple[int, float], ...]:
    """vLLM puts the chosen token first, whether it is among the likeliest or beside them."""
    candidates.sort(key=lambda candidate: -candidate[1])
    return tuple(candidates[:top])
