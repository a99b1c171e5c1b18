"""Chooses tokens from scores, by vLLM's rules in vLLM's order.

    grammar, bans and bias, penalties, temperature, min-p, top-k, top-p, draw

Log-probabilities are those of the unmodified scores. A row's choice depends on that row alone: not
on the batch, not on the worker.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from splitserve.engine.api import SampleSpec
from splitserve.protocol.generate import TokenLogprob
from splitserve.protocol.sampling import SamplingParams

Choice = tuple[int, TokenLogprob | None]

GREEDY_BELOW: Final = 1e-5
"""Temperatures under this are none."""

_UNIFORM_BITS: Final = 53
_CLOSED: Final = torch.tensor(
    [[0.0 if mask >> place & 1 else -math.inf for place in range(8)] for mask in range(256)]
)
"""For each byte of a mask, what it adds to the scores of its eight ids."""

_LIKELY: Final = (256, 4096)
"""Top-p looks at so many of the likeliest tokens before it sorts the whole vocabulary."""


def choose(logits: Tensor, specs: Sequence[SampleSpec]) -> list[Choice]:
    """One token for each row of ``logits [rows, vocab_size]``."""
    if all(is_plain(spec) for spec in specs):
        return [(token, None) for token in logits.max(-1).indices.tolist()]
    return [_choose(row, spec) for row, spec in zip(logits.float(), specs, strict=True)]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.blake2b(f"{seed} {position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> (64 - _UNIFORM_BITS)) / (1 << _UNIFORM_BITS)


def is_plain(spec: SampleSpec) -> bool:
    """Whether the likeliest token is the answer and nothing else is asked."""
    params = spec.params
    return (
        params.temperature < GREEDY_BELOW
        and params.logprobs is None
        and spec.allowed is None
        and not (params.needs_history or params.logit_bias or spec.banned)
    )


def _choose(logits: Tensor, spec: SampleSpec) -> Choice:
    params = spec.params
    scores = _adjusted(logits, spec)
    if params.temperature < GREEDY_BELOW:
        token = int(scores.max(-1).indices)
    else:
        token = _draw(_probabilities(scores, params), uniform(params.seed, spec.position))
    if params.logprobs is None:
        return token, None
    return token, _logprob(logits, token, params.logprobs)


def _adjusted(logits: Tensor, spec: SampleSpec) -> Tensor:
    """Grammar, bans, bias and penalties; ``logits`` stays as it is.

    Ids that do not exist have no effect.
    """
    params, size = spec.params, len(logits)
    if spec.allowed is not None:
        logits = logits + _closed(spec.allowed, size)
    if not (spec.banned or params.logit_bias or params.needs_history):
        return logits
    scores = logits.clone()
    scores[_ids(spec.banned, size)] = -math.inf
    bias = {token: value for token, value in params.logit_bias.items() if 0 <= token < size}
    scores[_ids(bias, size)] += torch.tensor(list(bias.values()))
    if params.repetition_penalty != 1.0:
        seen = _ids({*spec.prompt, *spec.output}, size)
        old, factor = scores[seen], params.repetition_penalty
        scores[seen] = torch.where(old > 0, old / factor, old * factor)
    counts = Counter(token for token in spec.output if 0 <= token < size)
    if counts and (params.frequency_penalty or params.presence_penalty):
        penalty = torch.tensor(list(counts.values())) * params.frequency_penalty
        scores[_ids(counts, size)] -= penalty + params.presence_penalty
    return scores


def _closed(allowed: bytes, size: int) -> Tensor:
    """``[size]``: 0 where an id's bit is set, else minus infinity."""
    # A quarter of the time of unpacking the bits and filling where they are not set.
    masks = torch.frombuffer(bytearray(allowed), dtype=torch.uint8).int()
    return _CLOSED.index_select(0, masks).flatten()[:size]


def _ids(tokens: Iterable[int], size: int) -> Tensor:
    return torch.tensor([token for token in tokens if 0 <= token < size], dtype=torch.int64)


def _probabilities(scores: Tensor, params: SamplingParams) -> Tensor:
    """In the vocabulary's order, not normalised after top-p. At a border, ties are all kept."""
    if params.temperature != 1.0:
        scores = scores / params.temperature
    if params.min_p > 0.0:
        scores = _from(scores.max() + math.log(params.min_p), scores, -math.inf)
    if 0 < params.top_k < len(scores):
        scores = _from(scores.topk(params.top_k).values[-1], scores, -math.inf)
    probabilities = scores.softmax(-1)
    if params.top_p < 1.0:
        return _from(_nucleus_floor(probabilities, params.top_p), probabilities, 0.0)
    return probabilities


def _from(floor: Tensor, values: Tensor, below: float) -> Tensor:
    """``values`` where they reach ``floor``, else ``below``."""
    # Half the time of a comparison and a fill. It keeps what is greater, not what is equal.
    return F.threshold(values, float(floor.nextafter(torch.tensor(-math.inf))), below)


def _nucleus_floor(probabilities: Tensor, top_p: float) -> Tensor:
    """The least probability in the smallest set of likeliest tokens that holds ``top_p``."""
    size = len(probabilities)
    for count in (*(few for few in _LIKELY if few < size), size):
        likely = probabilities.topk(count).values
        reached = likely.cumsum(0, dtype=torch.float64)
        if reached[-1] >= top_p:
            return likely[torch.searchsorted(reached, top_p)]
    return likely[-1]


def _draw(probabilities: Tensor, at: float) -> int:
    """Inverts the cumulative distribution at ``at`` of the whole.

    The vocabulary's order, because an order by probability could turn a difference in the last bit
    between two workers into another token.
    """
    reached = probabilities.cumsum(0, dtype=torch.float64)
    total = float(reached[-1])
    target = min(at * total, math.nextafter(total, 0.0))
    return int(torch.searchsorted(reached, target, right=True))


def _logprob(logits: Tensor, token: int, alternatives: int) -> TokenLogprob:
    logprobs = logits.log_softmax(-1)
    rank = int((logits > logits[token]).sum()) + 1
    top = logprobs.topk(min(alternatives, len(logprobs)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return TokenLogprob(token, float(logprobs[token]), rank, tuple(pairs))
