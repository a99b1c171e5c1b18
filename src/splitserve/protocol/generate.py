"""Token ids in, token ids out: the border between text work and everything behind it."""

from typing import Literal

import msgspec

from splitserve.ids import RequestId
from splitserve.protocol.sampling import SamplingParams

FinishReason = Literal["stop", "length", "abort"]


class GenerateRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One prompt and how to continue it.

    ``token_ids`` is the whole prompt (at least one id). ``priority``: lower runs first, as in vLLM.
    ``cache_salt`` separates tenants in the prefix cache. ``owner`` is whose request it is, as the
    gateway knows clients by their keys; empty where it asks for none. ``whole``: nobody looks at
    the answer before its last token, and none but its own settings end it, so that it may come in
    one piece. ``session`` is the same for requests that the client says belong together; it is for
    the router, which takes it for a hint.
    """

    request_id: RequestId
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    priority: int = 0
    cache_salt: str = ""
    owner: str = ""
    whole: bool = False
    session: str = ""


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities (natural log, of the unmodified logits) at one output position.

    ``top`` holds the likeliest ``(token_id, logprob)`` pairs, likeliest first; ``rank`` is the
    chosen token's place among all, from 1.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


class TokenChunk(msgspec.Struct, frozen=True, array_like=True):
    """New tokens of one request.

    ``index`` is the output position of the first of them, so that a lost or doubled token shows.
    ``finish_reason`` is set on the last chunk only; ``stop_reason`` then names the stop token id
    if one other than end-of-sequence ended the answer. ``cached_tokens`` (prompt tokens that did
    not have to be computed) is set on one chunk: our own workers know it with the first, vLLM tells
    it with the last.
    """

    request_id: RequestId
    index: int
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    cached_tokens: int | None = None
