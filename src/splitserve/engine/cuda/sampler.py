"""Chooses tokens on the device, by the rules of ``runner.sampling`` and in their order.

    grammar, bans and bias, penalties, temperature, min-p, top-k, top-p, draw

Nothing here waits for the device: what a row needs is written to pinned memory and copied.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from splitserve.engine.api import SampleSpec
from splitserve.engine.runner.sampling import GREEDY_BELOW, is_plain, uniform
from splitserve.protocol.generate import TokenLogprob

_BITS: Final = 8

_ROWS: Final = 32
"""Rows that are sorted and summed at once: bounds the memory that takes."""


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities of some rows, numbered as in the step. ``counts`` are the alternatives that
    each asked for; the tensors are on the host once the step's event has passed."""

    rows: tuple[int, ...]
    counts: tuple[int, ...]
    tokens: Tensor
    own: Tensor
    ranks: Tensor
    top_ids: Tensor
    top: Tensor

    def read(self) -> dict[int, TokenLogprob]:
        """By row."""
        found = {}
        tokens, own, ranks = self.tokens.tolist(), self.own.tolist(), self.ranks.tolist()
        top_ids, top = self.top_ids.tolist(), self.top.tolist()
        for at, (row, count) in enumerate(zip(self.rows, self.counts, strict=True)):
            pairs = tuple(zip(top_ids[at][:count], top[at][:count], strict=True))
            found[row] = TokenLogprob(tokens[at], own[at], ranks[at], pairs)
        return found


class Sampler:
    """For scores on one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._bits = torch.arange(_BITS, dtype=torch.uint8, device=device)

    def choose(self, logits: Tensor, specs: Sequence[SampleSpec]) -> Tensor:
        """One token for each row of ``logits [rows, vocab_size]``: int32 ``[rows]``."""
        tokens = logits.argmax(-1).int()
        hard = [row for row, spec in enumerate(specs) if not is_plain(spec)]
        for first in range(0, len(hard), _ROWS):
            some = hard[first : first + _ROWS]
            rows = self._ints(some)
            tokens[rows] = self._choose(logits[rows].float(), [specs[row] for row in some])
        return tokens

    def logprobs(
        self, logits: Tensor, tokens: Tensor, specs: Sequence[SampleSpec]
    ) -> Logprobs | None:
        """Of the unmodified scores; None when no row asks."""
        asked = {
            row: spec.params.logprobs
            for row, spec in enumerate(specs)
            if spec.params.logprobs is not None
        }
        if not asked:
            return None
        rows = self._ints(list(asked))
        scores = logits[rows].float()
        chosen = tokens[rows].long()[:, None]
        ranks = (scores > scores.gather(1, chosen)).sum(1) + 1
        logprobs = scores.log_softmax(-1)
        top = logprobs.topk(min(max(asked.values()), scores.shape[1]))
        return Logprobs(
            rows=tuple(asked),
            counts=tuple(asked.values()),
            tokens=self._to_host(chosen[:, 0]),
            own=self._to_host(logprobs.gather(1, chosen)[:, 0]),
            ranks=self._to_host(ranks),
            top_ids=self._to_host(top.indices),
            top=self._to_host(top.values),
        )

    def _choose(self, scores: Tensor, specs: Sequence[SampleSpec]) -> Tensor:
        scores = self._adjusted(scores, specs)
        greedy = scores.argmax(-1)
        drawn = [row for row, s in enumerate(specs) if s.params.temperature >= GREEDY_BELOW]
        if drawn:
            rows = self._ints(drawn)
            greedy[rows] = self._draw(scores[rows], [specs[row] for row in drawn])
        return greedy.int()

    def _adjusted(self, scores: Tensor, specs: Sequence[SampleSpec]) -> Tensor:
        """Grammar, bans, bias and penalties, in place. Ids that do not exist have no effect."""
        size = scores.shape[1]
        for row, spec in enumerate(specs):
            own, params = scores[row], spec.params
            if spec.allowed is not None:
                own.masked_fill_(self._closed(spec.allowed, size), -math.inf)
            if spec.banned:
                own[self._ids(spec.banned, size)] = -math.inf
            if params.logit_bias:
                bias = {t: value for t, value in params.logit_bias.items() if 0 <= t < size}
                own[self._ids(bias, size)] += self._floats(list(bias.values()))
            if params.repetition_penalty != 1.0:
                seen = self._ids({*spec.prompt, *spec.output}, size)
                old, factor = own[seen], params.repetition_penalty
                own[seen] = torch.where(old > 0, old / factor, old * factor)
            counts = Counter(token for token in spec.output if 0 <= token < size)
            if counts and (params.frequency_penalty or params.presence_penalty):
                penalty = self._floats(list(counts.values())) * params.frequency_penalty
                own[self._ids(counts, size)] -= penalty + params.presence_penalty
        return scores

    def _closed(self, allowed: bytes, size: int) -> Tensor:
        """``[size]``: whether an id's bit is not set."""
        packed = self._to_device(torch.frombuffer(bytearray(allowed), dtype=torch.uint8))
        bits = packed[:, None] >> self._bits & 1
        return bits.flatten()[:size] == 0

    def _draw(self, scores: Tensor, specs: Sequence[SampleSpec]) -> Tensor:
        """Inverts each row's cumulative distribution, in the vocabulary's order."""
        probabilities = self._probabilities(scores, specs)
        reached = probabilities.cumsum(-1, dtype=torch.float64)
        at = self._floats([uniform(s.params.seed, s.position) for s in specs], torch.float64)
        total = reached[:, -1]
        below = torch.nextafter(total, torch.zeros_like(total))
        target = torch.minimum(at * total, below)
        return torch.searchsorted(reached, target[:, None], right=True)[:, 0]

    def _probabilities(self, scores: Tensor, specs: Sequence[SampleSpec]) -> Tensor:
        """Not normalised after top-p. At a border, ties are all kept."""
        params = [spec.params for spec in specs]
        scores = scores / self._floats([p.temperature for p in params])[:, None]
        if any(p.min_p > 0.0 for p in params):
            least = [math.log(p.min_p) if p.min_p > 0.0 else -math.inf for p in params]
            floor = scores.max(-1, keepdim=True).values + self._floats(least)[:, None]
            scores = scores.masked_fill(scores < floor, -math.inf)
        size = scores.shape[1]
        if any(0 < p.top_k < size for p in params):
            places = [p.top_k - 1 if 0 < p.top_k < size else size - 1 for p in params]
            ordered = scores.sort(-1, descending=True).values
            floor = ordered.gather(1, self._ints(places)[:, None])
            scores = scores.masked_fill(scores < floor, -math.inf)
        probabilities = scores.softmax(-1)
        if any(p.top_p < 1.0 for p in params):
            floor = self._nucleus_floor(probabilities, [p.top_p for p in params])
            probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
        return probabilities

    def _nucleus_floor(self, probabilities: Tensor, top_p: list[float]) -> Tensor:
        """The least probability in each row's smallest set of likeliest tokens that holds its
        ``top_p``; 0 for rows that take all."""
        likely = probabilities.sort(-1, descending=True).values
        reached = likely.cumsum(-1, dtype=torch.float64)
        wanted = self._floats(top_p, torch.float64)[:, None]
        place = (reached < wanted).sum(-1, keepdim=True).clamp_(max=likely.shape[1] - 1)
        return likely.gather(1, place).masked_fill_(wanted >= 1.0, 0.0)

    def _ids(self, tokens: Iterable[int], size: int) -> Tensor:
        return self._ints([token for token in tokens if 0 <= token < size])

    def _ints(self, values: list[int]) -> Tensor:
        return self._to_device(torch.tensor(values, dtype=torch.int64))

    def _floats(
        self, values: list[float] | list[int], dtype: torch.dtype = torch.float32
    ) -> Tensor:
        return self._to_device(torch.tensor(values, dtype=dtype))

    def _to_device(self, values: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return values
        return values.pin_memory().to(self._device, non_blocking=True)

    def _to_host(self, values: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return values
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        return host.copy_(values, non_blocking=True)
