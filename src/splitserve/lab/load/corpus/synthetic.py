"""Prompts of token ids made from a seed, with as much shared prefix as asked for.

Ids come from SHA-256 in counter mode: the same on every machine and Python, and different from the
first token on for different names, so that no prefix cache finds what was not meant to be shared.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from splitserve.errors import ConfigError
from splitserve.lab.load.request import LoadRequest

FIRST_ORDINARY_ID: Final = 100
"""Ids below are often control tokens."""


class Vocabulary:
    """The ids prompts are made of: from FIRST_ORDINARY_ID to ``size``, the model's."""

    __slots__ = ("_ids",)

    def __init__(self, size: int) -> None:
        if size <= FIRST_ORDINARY_ID:
            raise ConfigError(f"a vocabulary has more than {FIRST_ORDINARY_ID} ids, not {size}")
        # One object per id, however often it occurs: a long trace has millions of tokens.
        self._ids = list(range(FIRST_ORDINARY_ID, size))

    def ids(self, name: str, count: int) -> tuple[int, ...]:
        """``count`` ids, made from ``name`` alone."""
        blocks = -(-count // 8)
        drawn = b"".join(sha256(f"{name}/{block}".encode()).digest() for block in range(blocks))
        words = struct.unpack(f">{8 * blocks}I", drawn)[:count]
        return tuple([self._ids[word % len(self._ids)] for word in words])


@dataclass(frozen=True, slots=True)
class Shape:
    """Lengths in tokens. ``shared_prefix`` tokens at the start are common to every request of one
    of ``groups`` groups; requests take turns among the groups."""

    prompt_tokens: int
    max_tokens: int
    shared_prefix: int = 0
    groups: int = 1


def synthetic(
    shard: str, seed: int, count: int, shape: Shape, vocab: Vocabulary
) -> list[LoadRequest]:
    """``count`` requests. Shards (``warmup``, ``measured``) share no prompt and no prefix."""
    if not 0 <= shape.shared_prefix <= shape.prompt_tokens or shape.groups < 1:
        raise ConfigError("a shared prefix is at most the prompt, in at least one group")
    own = shape.prompt_tokens - shape.shared_prefix
    name = f"{shard}-{seed}"
    prefixes = [
        vocab.ids(f"{name}/prefix-{group}", shape.shared_prefix) for group in range(shape.groups)
    ]
    return [
        LoadRequest(
            request_id=f"{name}-{index}",
            prompt=prefixes[index % shape.groups] + vocab.ids(f"{name}/own-{index}", own),
            max_tokens=shape.max_tokens,
        )
        for index in range(count)
    ]


@dataclass(frozen=True, slots=True)
class SessionShape:
    """Turns of a conversation. Each turn's prompt is all before it, the answers as served, and
    ``turn_tokens`` more. ``think_s`` passes between an answer and the next turn."""

    turns: int
    first_tokens: int
    turn_tokens: int
    max_tokens: int
    think_s: float


def synthetic_sessions(
    shard: str, seed: int, count: int, shape: SessionShape, vocab: Vocabulary
) -> list[LoadRequest]:
    """``count`` sessions, one after the other, each one's turns in order.

    Prompts are the same for every arm; what lies between them is each arm's own answers, as in use.
    Where a server gives no token ids, ids made from the seed stand for its answer.
    """
    return [
        turn
        for index in range(count)
        for turn in _session(f"{shard}-{seed}-s{index}", shape, vocab)
    ]


def _session(name: str, shape: SessionShape, vocab: Vocabulary) -> Iterator[LoadRequest]:
    yield LoadRequest(
        request_id=f"{name}-t0",
        prompt=vocab.ids(f"{name}/first", shape.first_tokens),
        max_tokens=shape.max_tokens,
        session=name,
    )
    for turn in range(1, shape.turns):
        yield LoadRequest(
            request_id=f"{name}-t{turn}",
            prompt=vocab.ids(f"{name}/turn-{turn}", shape.turn_tokens),
            max_tokens=shape.max_tokens,
            session=name,
            turn=turn,
            think_s=shape.think_s,
            follows=True,
            instead=vocab.ids(f"{name}/answer-{turn}", shape.max_tokens),
        )


def corpus_hash(requests: Sequence[LoadRequest]) -> str:
    """SHA-256 over everything that is asked and when, in order."""
    digest = sha256()
    for request in requests:
        digest.update(msgspec.json.encode(request) + b"\n")
    return digest.hexdigest()
