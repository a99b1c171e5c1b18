"""The next turn of a conversation over NIXL pull: prefill reads what decode kept of the last one.

vLLM compares no tokens: it takes decode's blocks for the beginning of the new prompt. A template
that strips reasoning, or a client that edits history, then gives silently wrong text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.router.workers.vllm.dialects import nixl_answer
from splitserve.router.workers.vllm.dialects.base import Instance, Params

DECODER_TTL_S: Final = 480.0
"""vLLM's ``decoder_kv_blocks_ttl``: how long decode keeps blocks for a next turn. Not renewed."""

MARGIN_S: Final = 10.0
"""Prefill may queue before it reads, and refuses by itself 5 s before the end."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A finished turn: what ``decode`` returned, all its tokens (prompt and output), and when it
    was finished, in seconds of the caller's clock (decode's own deadline is of another clock)."""

    returned: Params
    tokens: Sequence[int]
    decode: Instance
    finished_s: float


def continue_from(
    last: Turn,
    prompt: Sequence[int],
    prefill: Instance,
    now_s: float,
    ttl_s: float = DECODER_TTL_S,
) -> Params | None:
    """``kv_transfer_params`` of the new turn's prefill leg, to be used once; None when the plain
    ones must do: ``prompt`` does not literally extend the last turn's tokens, decode may have let
    go, or the fact ``bidirectional`` of ``prefill`` is not True (it would wait for ever).

    Raises DialectError for an answer that is not sound.
    """
    params = nixl_answer.sound(last.returned, last.decode, mode="pull", prefilled=False)
    kept = params.get("remote_num_tokens")
    if prefill.facts.get("bidirectional") is not True or not kept or kept > len(last.tokens):
        return None
    if now_s - last.finished_s >= ttl_s - MARGIN_S:
        return None
    old = list(last.tokens)
    # A prompt no longer than the history would have its blocks matched from the wrong end.
    if len(prompt) <= len(old) or list(prompt[: len(old)]) != old:
        return None
    return params
