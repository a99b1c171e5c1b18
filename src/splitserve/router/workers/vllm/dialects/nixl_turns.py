"""The next turn of a conversation over NIXL pull: prefill reads what decode kept of the last one.

vLLM compares no tokens: it takes decode's blocks for the beginning of the new prompt. A template
that strips reasoning, or a client that edits history, then gives silently wrong text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from splitserve.router.workers.vllm.dialects import nixl_answer
from splitserve.router.workers.vllm.dialects.base import Instance, Params

DECODER_TTL_S: Final = 480.0
"""vLLM's ``decoder_kv_blocks_ttl``: how long decode keeps blocks for a next turn. Not renewed."""

MARGIN_S: Final = 10.0
"""Prefill may queue before it reads, and refuses by itself 5 s before the end."""


BIDIRECTIONAL: Final = "bidirectional"
"""The fact that says it of an instance, as True."""

TTL: Final = "decoder_kv_blocks_ttl"
"""The fact how many seconds decode keeps a turn, where that is not DECODER_TTL_S."""

_PULLS: Final = frozenset({"NixlConnector", "NixlPullConnector"})


def turn_facts(config: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What an instance started with that ``--kv-transfer-config`` can do for a next turn: nothing
    unless it pulls by NIXL. ``told`` are the facts that the deployment gave; a fact in an address
    is ``1`` or ``true``."""
    extra = config.get("kv_connector_extra_config") or {}
    said, ttl_s = told.get(BIDIRECTIONAL), extra.get(TTL)
    both_ways = extra.get("bidirectional_kv_xfer") is True or said in (True, "true")
    return {
        BIDIRECTIONAL: both_ways and config.get("kv_connector") in _PULLS,
        TTL: ttl_s if isinstance(ttl_s, int | float) else DECODER_TTL_S,
    }


def bidirectional(instance: Instance) -> bool:
    """As prefill it reads what another has kept of a turn, as decode it keeps that."""
    return instance.facts.get(BIDIRECTIONAL) is True


@dataclass(frozen=True, slots=True)
class Turn:
    """A finished turn: what ``decode`` returned, all its tokens (prompt and output), and when it
    was finished, in seconds of the caller's clock (decode's own deadline is of another clock)."""

    returned: Params
    tokens: Sequence[int]
    decode: Instance
    finished_s: float


def continues(turn: Turn) -> bool:
    """Whether a next turn may go on from that one: decode keeps blocks, of tokens that are known.

    Raises DialectError for an answer that is not sound.
    """
    return _kept(turn) is not None


def continue_from(
    last: Turn, prompt: Sequence[int], prefill: Instance, now_s: float
) -> Params | None:
    """``kv_transfer_params`` of the new turn's prefill leg, to be used once; None when the plain
    ones must do: ``prompt`` does not literally extend the last turn's tokens, decode may have let
    go, or ``prefill`` is not bidirectional (it would wait for ever).

    Raises DialectError for an answer that is not sound.
    """
    params = _kept(last)
    if params is None or not bidirectional(prefill):
        return None
    ttl_s: float = last.decode.facts.get(TTL, DECODER_TTL_S)
    if now_s - last.finished_s >= ttl_s - MARGIN_S:
        return None
    old = tuple(last.tokens)
    # A prompt no longer than the history would have its blocks matched from the wrong end.
    if len(prompt) <= len(old) or tuple(prompt[: len(old)]) != old:
        return None
    return params


def _kept(turn: Turn) -> dict[str, Any] | None:
    params = nixl_answer.sound(turn.returned, turn.decode, mode="pull", prefilled=False)
    count = params.get("remote_num_tokens")
    return params if count and count <= len(turn.tokens) else None
