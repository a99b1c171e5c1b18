"""Which requests a run sends: the plan's corpus at the run's cell and shard.

Equal cell and shard give equal requests, in whichever arm and process; other shards, and warm-up,
give others.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from splitserve.errors import ConfigError
from splitserve.lab.load.corpus.conversations import Talk, read_messages, read_sharegpt
from splitserve.lab.load.corpus.synthetic import (
    SessionShape,
    Shape,
    Vocabulary,
    synthetic,
    synthetic_sessions,
)
from splitserve.lab.load.corpus.traces import Fit, read_trace
from splitserve.lab.load.request import LoadRequest, prompt_lengths
from splitserve.lab.load.schedule import conversations
from splitserve.lab.plan.phases import Cell
from splitserve.lab.plan.study import Study
from splitserve.lab.plan.workload import SYNTHETIC, WHOLE, Corpus

TRACES: Final = {
    "azure_csv": "azure",
    "burstgpt_csv": "burstgpt",
    "mooncake_jsonl": "mooncake",
}
"""Names of sources in a plan, and of the forms that ``corpus.traces`` reads."""

UNLIMITED: Final = 1 << 30
"""Tokens of a model whose limit nobody has told."""

_TALKS: Final[dict[str, Callable[[Path, Talk], list[LoadRequest]]]] = {
    "messages_jsonl": read_messages,
    "sharegpt_json": read_sharegpt,
}
_ANSWER: Final = 256
"""The cap of a conversation's answers where the plan names none."""

_TURN_PART: Final = 8
"""A session's later turn is this part of its first prompt."""


@dataclass(frozen=True, slots=True)
class Source:
    """What prompts are made from. ``file`` None for synthetic ones."""

    study: Study
    file: Path | None
    vocab: Vocabulary
    max_model_len: int

    def talks(self, cell: Cell, shard: int, count: int, kind: str) -> list[tuple[LoadRequest, ...]]:
        """``count`` requests or a little more, as whole conversations. ``kind`` is ``warmup`` or
        ``measured``: they share nothing. Raises ConfigError where the file has too few."""
        if self.file is None:
            return conversations(self._made(cell, shard, count, kind))
        return list(self._read(cell, shard, count, kind))

    def _made(self, cell: Cell, shard: int, count: int, kind: str) -> list[LoadRequest]:
        work, seed = self.study.workload, seed_of(self.study.workload.corpus.seed, cell, shard)
        prompt = _length(work.corpus.prompt_tokens, cell.prompt)
        output = _length(work.corpus.output_tokens, cell.output)
        if work.sessions is None:
            shared = round(work.corpus.shared_prefix * prompt)
            shape = Shape(prompt, output, shared, max(1, work.corpus.prefix_groups))
            made = synthetic(kind, seed, count, shape, self.vocab)
        else:
            turns = work.sessions.turns
            talk = SessionShape(
                turns, prompt, max(1, prompt // _TURN_PART), output, work.sessions.think_s
            )
            made = synthetic_sessions(kind, seed, -(-count // turns), talk, self.vocab)
        forced = work.sampling.ignore_eos
        return [replace(request, forced=forced) for request in made]

    def _read(
        self, cell: Cell, shard: int, count: int, kind: str
    ) -> Iterator[tuple[LoadRequest, ...]]:
        """A contiguous slice, which keeps bursts; warm-up is what comes right before it."""
        assert self.file is not None
        corpus = self.study.workload.corpus
        seed = seed_of(corpus.seed, cell, shard)
        rows = _rows(self.file, self.study, self.vocab, self.max_model_len, seed, cell)
        if len(rows) < corpus.requests + corpus.warmup_requests:
            raise ConfigError(
                f"workload.corpus.file: {self.file} has {len(rows)} requests of {cell.prompt} and "
                f"{cell.output}, and a run takes {corpus.requests + corpus.warmup_requests}"
            )
        begin = shard * (corpus.requests + corpus.warmup_requests)
        begin += corpus.warmup_requests if kind == "measured" else 0
        taken = 0
        for turns in islice(cycle(rows), begin, None):
            if taken >= count:
                return
            taken += len(turns)
            yield tuple(_named(turn, f"{kind}-{shard}") for turn in turns)


def _named(turn: LoadRequest, name: str) -> LoadRequest:
    session = None if turn.session is None else f"{name}-{turn.session}"
    return replace(turn, request_id=f"{name}-{turn.request_id}", session=session)


def seed_of(seed: int, cell: Cell, shard: int) -> int:
    """One number for what is asked in a cell and shard."""
    name = f"{seed}/{cell.prompt}/{cell.output}/{shard}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:4], "big")


@lru_cache(maxsize=2)
def _rows(
    file: Path, study: Study, vocab: Vocabulary, max_model_len: int, seed: int, cell: Cell
) -> list[tuple[LoadRequest, ...]]:
    corpus = study.workload.corpus
    if corpus.source in TRACES:
        fit = Fit(vocab, max_model_len, seed)
        read = read_trace(file, TRACES[corpus.source], fit).requests
    else:
        work = study.workload
        think_s = work.sessions.think_s if work.sessions else 0.0
        cap = corpus.output_tokens.get(cell.output, _ANSWER)
        read = _TALKS[corpus.source](file, Talk(cap, think_s, work.sampling.ignore_eos))
    return [turns for turns in conversations(read) if _fit(turns, corpus, cell)]


def _fit(turns: tuple[LoadRequest, ...], corpus: Corpus, cell: Cell) -> bool:
    if turns[0].is_chat:
        return True
    return all(
        _in_band(length, corpus.prompt_tokens, cell.prompt)
        and _in_band(turn.max_tokens, corpus.output_tokens, cell.output)
        for turn, length in zip(turns, prompt_lengths(turns), strict=True)
    )


def _in_band(length: int, bands: dict[str, int], name: str) -> bool:
    """Up to the band's length and above the next shorter one."""
    if name == WHOLE and name not in bands:
        return True
    top = bands[name]
    below = max((other for other in bands.values() if other < top), default=0)
    return below < length <= top


def _length(bands: dict[str, int], name: str) -> int:
    if name not in bands:
        raise ConfigError(f"a {SYNTHETIC} corpus has no length {name!r}; there are {sorted(bands)}")
    return bands[name]
