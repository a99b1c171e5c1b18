"""Readers of public request traces: arrivals, lengths, and for Mooncake the shared prefixes.

A trace has no text: prompts are made from ids as in ``synthetic``. Rows without an answer are left
out and counted. Offsets are seconds from the first row that is kept. Columns are found by name.
Rows of one session (BurstGPT) become its turns, each sent after the answer before it.

Formats: Azure LLM inference traces 2023 and 2024 (CSV), BurstGPT (CSV), Mooncake FAST'25 (JSON
lines, ``timestamp`` in milliseconds, one hash id per block of 512 tokens).
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, TextIO

import msgspec

from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.load.corpus.synthetic import Vocabulary
from splitserve.lab.load.request import LoadRequest

MOONCAKE_BLOCK: Final = 512
"""Tokens that one hash id stands for."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace. ``blocks`` are Mooncake's hash ids; equal id, equal block.

    ``session`` names a conversation, empty for none; ``took_s`` is how long the answer took.
    """

    stamp_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    session: str = ""
    took_s: float = 0.0


_Numbered = tuple[int, TraceRow]
"""With its place in the trace, by time."""


@dataclass(frozen=True, slots=True)
class Imported:
    """``requests`` and how many rows were left out, and why."""

    requests: list[LoadRequest]
    without_answer: int
    too_long: int


@dataclass(frozen=True, slots=True)
class Fit:
    """How rows become requests. Rows of more than ``max_model_len`` tokens in all are left out;
    ``limit`` rows of the file are read, from its start on: a slice in time keeps the bursts."""

    vocab: Vocabulary
    max_model_len: int
    seed: int = 0
    limit: int | None = None


def read_trace(path: Path, form: str, fit: Fit) -> Imported:
    """``form`` is a key of READERS. Raises ConfigError for a file that is none of that form, and
    UnavailableError for one that cannot be read."""
    if form not in READERS:
        raise ConfigError(f"no trace form {form!r}; there are {', '.join(READERS)}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(islice(READERS[form](file), fit.limit))
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read: {error}") from error
    except (KeyError, ValueError, TypeError, AttributeError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} is no {form} trace: {type(error).__name__} {error}") from error
    return _imported(rows, form, fit)


def _imported(rows: list[TraceRow], form: str, fit: Fit) -> Imported:
    answered = [row for row in rows if row.output_tokens > 0 and row.prompt_tokens > 0]
    kept = [row for row in answered if row.prompt_tokens + row.output_tokens <= fit.max_model_len]
    kept.sort(key=lambda row: row.stamp_s)
    start_s = kept[0].stamp_s if kept else 0.0
    numbered = [
        (index, replace(row, stamp_s=row.stamp_s - start_s)) for index, row in enumerate(kept)
    ]
    requests = [
        request
        for talk in _talks(numbered)
        for request in _requests(talk, f"{form}-{fit.seed}", fit.vocab)
    ]
    return Imported(requests, len(rows) - len(answered), len(answered) - len(kept))


def _talks(rows: Sequence[_Numbered]) -> list[list[_Numbered]]:
    """Rows of one session together, in the order of their first ones."""
    talks: dict[str, list[_Numbered]] = {}
    for index, row in rows:
        name = f"session {row.session}" if row.session else f"row {index}"
        talks.setdefault(name, []).append((index, row))
    return list(talks.values())


def _requests(talk: Sequence[_Numbered], name: str, vocab: Vocabulary) -> Iterator[LoadRequest]:
    """A later turn's prompt goes on from all before it where the trace's is longer than that;
    where it is not, the trace began anew. Whole prompts have the trace's lengths either way."""
    session = f"{name}-{talk[0][1].session}" if len(talk) > 1 else None
    said, free_s = 0, 0.0
    for turn, (index, row) in enumerate(talk):
        follows = turn > 0 and row.prompt_tokens > said
        own = replace(row, prompt_tokens=row.prompt_tokens - said) if follows else row
        yield LoadRequest(
            request_id=f"{name}-{index}",
            prompt=_prompt(own, name, index, vocab),
            max_tokens=row.output_tokens,
            offset_s=row.stamp_s,
            session=session,
            turn=turn,
            think_s=max(0.0, row.stamp_s - free_s) if turn else 0.0,
            follows=follows,
            instead=vocab.ids(f"{name}/answer-{index}", talk[turn - 1][1].output_tokens)
            if follows
            else (),
        )
        said = row.prompt_tokens + row.output_tokens
        free_s = row.stamp_s + row.took_s


def _prompt(row: TraceRow, name: str, index: int, vocab: Vocabulary) -> tuple[int, ...]:
    prompt: list[int] = []
    for block in row.blocks:
        prompt += vocab.ids(f"{name}/block-{block}", MOONCAKE_BLOCK)
    missing = row.prompt_tokens - len(prompt)
    if missing > 0:
        prompt += vocab.ids(f"{name}/row-{index}", missing)
    return tuple(prompt[: row.prompt_tokens])


def _rows(file: TextIO, *columns: str) -> Iterator[dict[str, str]]:
    reader = csv.DictReader(file)
    if missing := set(columns) - set(reader.fieldnames or ()):
        raise ValueError(f"no column {', '.join(sorted(missing))}")
    return reader


def _azure(file: TextIO) -> Iterator[TraceRow]:
    for row in _rows(file, "TIMESTAMP", "ContextTokens", "GeneratedTokens"):
        # Seven digits of a second are written; a datetime holds six.
        whole, _, part = row["TIMESTAMP"].partition(".")
        stamp_s = (datetime.fromisoformat(whole) - datetime(1970, 1, 1)).total_seconds()
        yield TraceRow(
            stamp_s + float(f"0.{part or 0}"),
            int(row["ContextTokens"]),
            int(row["GeneratedTokens"]),
        )


def _burstgpt(file: TextIO) -> Iterator[TraceRow]:
    """Later releases name the session and how long the answer took."""
    for row in _rows(file, "Timestamp", "Request tokens", "Response tokens"):
        yield TraceRow(
            float(row["Timestamp"]),
            int(row["Request tokens"]),
            int(row["Response tokens"]),
            session=(row.get("Session ID") or "").strip(),
            took_s=float(row.get("Elapsed time") or 0.0),
        )


class _MooncakeLine(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def _mooncake(file: TextIO) -> Iterator[TraceRow]:
    for text in file:
        if text.strip():
            line = msgspec.json.decode(text, type=_MooncakeLine)
            if len(line.hash_ids) != -(-line.input_length // MOONCAKE_BLOCK):
                raise ValueError(f"{len(line.hash_ids)} hash ids for {line.input_length} tokens")
            yield TraceRow(
                line.timestamp / 1e3, line.input_length, line.output_length, tuple(line.hash_ids)
            )


READERS: Final[dict[str, Callable[[TextIO], Iterator[TraceRow]]]] = {
    "azure": _azure,
    "burstgpt": _burstgpt,
    "mooncake": _mooncake,
}
"""Trace forms by name."""
