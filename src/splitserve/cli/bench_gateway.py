"""``splitserve bench gateway``: what the gateway adds to every token."""

from splitserve.bench.gateway import measure_gateway
from splitserve.cli.readings import print_progress, print_readings


def run(model: str, streams: int, tokens: int, rate: float, as_json: bool) -> int:
    """``streams`` answers of ``tokens`` tokens at ``rate`` tokens per second each."""
    print_progress(f"{streams} streams of {rate:.0f} tokens/s, {tokens / rate:.0f} s")
    print_readings([measure_gateway(model, streams, tokens, rate)], as_json)
    return 0
