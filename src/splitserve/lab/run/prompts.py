"""Which requests a run sends: the plan's corpus at the run's cell and shard.

Equal cell and shard give equal requests, in whichever arm and process; other shards, and warm-up,
give others.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
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
        return self._read(cell, shard, count, kind)

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

    def _read(self, cell: Cell, shard: int, count: int, kind: str) -> list[tuple[LoadRequest, ...]]:
        """A contiguous slice, which keeps bursts; warm-up is what comes right before it."""
        corpus = self.study.workload.corpus
        found = self._of_cell(cell, seed_of(corpus.seed, cell, shard))
        begin = shard * (corpus.requests + corpus.warmup_requests) + corpus.warmup_requests
        if kind == "measured":
            taken, warmup = _slice(found, begin, 1, count), corpus.warmup_requests
        else:
            taken = _slice(found, begin - 1, -1, count)[::-1]
            warmup = max(len(taken), corpus.warmup_requests)
        if len(found) < corpus.requests + warmup:
            raise ConfigError(
                f"workload.corpus.file: {self.file} has {len(found)} requests or conversations of "
                f"{cell.prompt} and {cell.output}, and a run takes up to {corpus.requests + warmup}"
            )
        return [tuple(_named(turn, f"{kind}-{shard}") for turn in turns) for turns in taken]

    def _of_cell(self, cell: Cell, seed: int) -> list[tuple[LoadRequest, ...]]:
        """All of the file's conversations that have the cell's lengths."""
        assert self.file is not None
        work, corpus = self.study.workload, self.study.workload.corpus
        think_s = work.sessions.think_s if work.sessions else 0.0
        cap = corpus.output_tokens.get(cell.output, _ANSWER)
        how = (
            Fit(self.vocab, self.max_model_len, seed)
            if corpus.source in TRACES
            else Talk(cap, think_s, work.sampling.ignore_eos)
        )
        read = conversations(_requests(self.file, corpus.source, how))
        return [turns for turns in read if _fit(turns, corpus, cell)]


def _named(turn: LoadRequest, name: str) -> LoadRequest:
    session = None if turn.session is None else f"{name}-{turn.session}"
    return replace(turn, request_id=f"{name}-{turn.request_id}", session=session)


def seed_of(seed: int, cell: Cell, shard: int) -> int:
    """One number for what is asked in a cell and shard."""
    name = f"{seed}/{cell.prompt}/{cell.output}/{shard}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:4], "big")


@lru_cache(maxsize=2)
def _requests(file: Path, source: str, how: Fit | Talk) -> Sequence[LoadRequest]:
    """Kept for a while: a run asks twice, for warm-up too."""
    if isinstance(how, Fit):
        return read_trace(file, TRACES[source], how).requests
    return _TALKS[source](file, how)


def _slice(
    found: Sequence[tuple[LoadRequest, ...]], at: int, step: int, count: int
) -> list[tuple[LoadRequest, ...]]:
    """``count`` requests or a little more from place ``at`` on, past the end again from the
    start; with ``step`` -1 backwards."""
    taken: list[tuple[LoadRequest, ...]] = []
    while found and count > 0:
        taken.append(found[at % len(found)])
        count -= len(taken[-1])
        at += step
    return taken


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
