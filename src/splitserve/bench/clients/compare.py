"""Every client on the same requests, one after the other, and what each says beside what passed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from splitserve.bench.clients.heard import Heard, heard_in
from splitserve.bench.clients.job import Job, LoadTool, Said
from splitserve.bench.clients.tap import Tap
from splitserve.bench.quantile import quantile
from splitserve.errors import ConfigError, UnavailableError

ANSWERS: Final = "answers"
TTFT: Final = "TTFT, ms"
GAP: Final = "gap of all, ms"
MEAN_GAP: Final = "mean gap of a request, ms"

_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one client: what it says, and what passed the tap for the same requests.
    ``said`` None where the client keeps nothing that it could be taken from."""

    client: str
    measure: str
    figure: str
    said: float | None
    wire: float


async def cross_check(
    job: Job,
    tools: Sequence[LoadTool],
    progress: Callable[[str], None],
    keep: Callable[[Sequence[Row]], None],
) -> None:
    """``job.url`` is the server's; ``keep`` gets each client's rows when it is done.

    Raises UnavailableError when a client fails a request: all rows are of whole runs.
    """
    host, port = _address(job.url)
    for tool in tools:
        progress(f"{tool.name}: {len(job.prompts)} requests at {job.rate:g} a second")
        async with Tap(host, port) as tap:
            said = await tool.run(replace(job, url=tap.url))
            heard = heard_in(tap.connections)
        _check(tool.name, heard, len(job.prompts))
        keep(rows_of(tool.name, said, heard, job.tokens))


def rows_of(client: str, said: Said, heard: Sequence[Heard], tokens: int) -> list[Row]:
    """``heard`` are the same requests. Quantiles by one method for all: values that occurred."""
    wire_means = [(one.tokens_s[-1] - one.tokens_s[0]) / (tokens - 1) for one in heard]
    wire_gaps = [gap for one in heard for gap in one.gaps_s]
    said_gaps = None if said.gaps_s is None else [gap for gaps in said.gaps_s for gap in gaps]
    return [
        Row(client, ANSWERS, "count", float(len(said.ttft_s)), float(len(heard))),
        *_rows(client, TTFT, said.ttft_s, [one.ttft_s for one in heard]),
        *_rows(client, GAP, said_gaps, wire_gaps),
        *_rows(client, MEAN_GAP, said.mean_gap_s, wire_means),
    ]


def _rows(
    client: str, measure: str, said: Sequence[float] | None, wire: Sequence[float]
) -> list[Row]:
    return [
        Row(
            client,
            measure,
            name,
            None if said is None else 1e3 * quantile(said, share),
            1e3 * quantile(wire, share),
        )
        for name, share in _SHARES.items()
    ]


def _check(client: str, heard: Sequence[Heard], requests: int) -> None:
    if len(heard) != requests:
        raise UnavailableError(
            f"{client} sent {len(heard)} requests that were answered, not {requests}"
        )


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None or parts.path.strip("/"):
        raise ConfigError(
            f"{url!r} is not of the form http://HOST:PORT, which a relay can stand for"
        )
    return parts.hostname, parts.port or 80
