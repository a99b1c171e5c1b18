"""``splitserve bench soak``: streams under kills, freezes and restarts."""

import asyncio

from splitserve.bench.soak import soak
from splitserve.cli.readings import print_progress, print_readings


def run(model: str, minutes: float, streams: int, seed: int, as_json: bool) -> int:
    """0 when no request was lost, no token wrong, no block leaked and no stream hung; else 1."""
    print_progress(f"{streams} streams for {minutes:g} minutes, seed {seed}")
    reading = asyncio.run(soak(model, minutes * 60, streams, seed, print_progress))
    print_readings([reading], as_json)
    return 0 if reading.clean else 1
