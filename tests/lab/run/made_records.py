"""Records of a run with known first tokens."""

from collections.abc import Sequence

from splitserve.lab.load.record import Counting, Outcome, RequestRecord

WARMED_UP = -1.0
"""When the one request of warm-up was due."""


def record_of(
    name: str, due_s: float, ttft_s: float, sizes: Sequence[int] = (1, 1, 1), gap_s: float = 0.1
) -> RequestRecord:
    events = [(due_s + ttft_s + gap_s * at, size) for at, size in enumerate(sizes)]
    return RequestRecord(
        request_id=name,
        arm="A",
        run="1",
        intended_s=due_s,
        sent_s=due_s,
        first_byte_s=events[0][0],
        events=events,
        ended_s=events[-1][0],
        outcome=Outcome.OK,
        counting=Counting.IDS,
        warmup=due_s == WARMED_UP,
    )


def run_of(waits: Sequence[float], *, warm: bool = True) -> list[RequestRecord]:
    """One request a second, with these TTFTs, after one of warm-up where ``warm``."""
    measured = [record_of(f"r{at}", float(at), wait) for at, wait in enumerate(waits)]
    return [record_of("w", WARMED_UP, 1.0), *measured] if warm else measured
