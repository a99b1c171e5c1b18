"""Finished turns of conversations whose KV a decode instance still keeps, found by their tokens.

A turn serves one prompt, of the same client and cache salt, that literally begins with all of the
turn's tokens; the longest such turn is taken. What vLLM would make of it, see
``dialects/nixl_turns.py``.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from splitserve.ids import WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.router.workers.vllm.dialects import nixl_turns
from splitserve.router.workers.vllm.dialects.base import DialectError, Instance, Params

MAX_TURNS: Final = 512
"""Looking one up costs about a microsecond for each length that is among them."""

MAX_TOKENS: Final = 4_000_000
"""Of all turns together, 8 bytes each."""

_Scope = tuple[str, str]
"""Owner and cache salt."""

_Key = tuple[_Scope, int, bytes]
"""Scope, number of tokens, their digest."""


@dataclass(frozen=True, slots=True)
class _Kept:
    turn: nixl_turns.Turn
    worker: WorkerId


class KeptTurns:
    """At most ``max_turns`` with ``max_tokens`` in all: the oldest make room."""

    def __init__(self, max_turns: int = MAX_TURNS, max_tokens: int = MAX_TOKENS) -> None:
        self._max_turns = max_turns
        self._max_tokens = max_tokens
        self._kept: dict[_Key, _Kept] = {}
        self._lengths: dict[_Scope, Counter[int]] = {}
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(
        self,
        request: GenerateRequest,
        answer: Sequence[int],
        returned: Params | None,
        worker: WorkerId,
        decode: Instance,
        now_s: float,
    ) -> bool:
        """``worker``, whose instance is ``decode``, has just answered with ``returned``. False
        where that is nothing to go on from."""
        tokens = array("q", request.token_ids)
        tokens.extend(answer)
        turn = nixl_turns.Turn(returned or {}, tokens, decode, now_s)
        try:
            usable = nixl_turns.continues(turn)
        except DialectError:
            usable = False
        if not usable or len(tokens) > self._max_tokens:
            return False
        scope = _scope(request)
        [digest] = _digests(tokens, [len(tokens)])
        key = (scope, len(tokens), digest)
        if key in self._kept:
            self._drop(key)
        self._kept[key] = _Kept(turn, worker)
        self._lengths.setdefault(scope, Counter())[len(tokens)] += 1
        self._tokens += len(tokens)
        self._make_room()
        return True

    def take(
        self,
        request: GenerateRequest,
        prefill: Instance,
        reaches: Callable[[WorkerId], bool],
        now_s: float,
    ) -> Params | None:
        """``kv_transfer_params`` for the prefill leg of ``request`` at ``prefill``; whatever
        becomes of that leg, they are not given again. ``reaches`` says of a decode worker whether
        that instance can read from it. None for the plain ones."""
        if not nixl_turns.bidirectional(prefill):
            return None
        for key in self._beginnings(request):
            if reaches(self._kept[key].worker):
                turn = self._drop(key)
                params = nixl_turns.continue_from(turn, request.token_ids, prefill, now_s)
                if params is not None:
                    return params
        return None

    def forget(self, worker: WorkerId) -> None:
        """All of a decode worker that is lost."""
        for key in [key for key, kept in self._kept.items() if kept.worker == worker]:
            self._drop(key)

    def _beginnings(self, request: GenerateRequest) -> Iterator[_Key]:
        """Of the turns that may be how the prompt begins, the longest first."""
        scope, prompt = _scope(request), request.token_ids
        lengths = sorted(n for n in self._lengths.get(scope, ()) if n < len(prompt))
        if lengths:
            digests = _digests(array("q", prompt[: lengths[-1]]), lengths)
            keys = [(scope, n, digest) for n, digest in zip(lengths, digests, strict=True)]
            yield from (key for key in reversed(keys) if key in self._kept)

    def _drop(self, key: _Key) -> nixl_turns.Turn:
        scope, length, _ = key
        lengths = self._lengths[scope]
        lengths[length] -= 1
        if not lengths[length]:
            del lengths[length]
        if not lengths:
            del self._lengths[scope]
        self._tokens -= length
        return self._kept.pop(key).turn

    def _make_room(self) -> None:
        while len(self._kept) > self._max_turns or self._tokens > self._max_tokens:
            self._drop(next(iter(self._kept)))


def _scope(request: GenerateRequest) -> _Scope:
    return (request.owner, request.cache_salt)


def _digests(tokens: "array[int]", lengths: Sequence[int]) -> list[bytes]:
    """Of the first so many tokens, for each of the ``lengths``, which ascend: in one pass."""
    found, done = [], 0
    state, view = blake2b(digest_size=16), memoryview(tokens)
    for length in lengths:
        state.update(view[done:length])
        found.append(state.digest())
        done = length
    return found
