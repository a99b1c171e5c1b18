"""What every client is asked to do, and what it says of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """``prompts`` as chats of one message each, ``rate`` requests a second at equal distances,
    answers of ``tokens`` tokens. ``url`` is without ``/v1``; ``tokenizer`` a folder, for clients
    that count tokens themselves; ``folder`` takes files."""

    url: str
    model: str
    tokenizer: Path
    prompts: Sequence[str]
    rate: float
    tokens: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Said:
    """What a client kept of each request, in the order in which they were sent, in seconds.

    ``gaps_s`` None: it keeps no single gaps. ``mean_gap_s``: its own figure per request.
    """

    ttft_s: tuple[float, ...]
    gaps_s: tuple[tuple[float, ...], ...] | None
    mean_gap_s: tuple[float, ...]


class LoadTool(Protocol):
    """A client under test."""

    @property
    def name(self) -> str:
        """With its version, for the table."""

    async def run(self, job: Job) -> Said:
        """Raises UnavailableError when it fails a request, or cannot be run."""
