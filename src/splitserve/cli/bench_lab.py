"""``splitserve bench lab``: the lab's own error rates, each beside its limit."""

import asyncio
from collections.abc import Iterator

from splitserve.bench.lab import Reading, client_readings, error_rates
from splitserve.cli.readings import print_progress, print_readings


def run(studies: int, seed: int, as_json: bool) -> int:
    """1 when a limit is missed."""
    missed = 0
    for reading in _measured(studies, seed):
        missed += not reading.met
        if as_json:
            print_readings([reading], as_json)
        else:
            print(line_of(reading), flush=True)
    return 1 if missed else 0


def line_of(reading: Reading) -> str:
    """One row of the table."""
    verdict = "" if not reading.limit else "met" if reading.met else "MISSED"
    return f"{reading.what:<58} {reading.found:>8.4f}  {reading.limit:<14} {verdict}".rstrip()


def _measured(studies: int, seed: int) -> Iterator[Reading]:
    print_progress("testing the load client on this machine")
    yield from asyncio.run(client_readings())
    print_progress(f"rehearsing four times {studies} simulated studies")
    yield from error_rates(studies, seed)
