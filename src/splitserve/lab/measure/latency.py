"""Times of one request. Only events with tokens count: a role, a comment, a usage never do.

For the token-bearing events at t_1 .. t_m with n_k tokens each: TTFT is t_1 from when the request
was due (``user``) or sent (``service``); gaps are t_k - t_(k-1) from the second event on.
"""

import math
from itertools import pairwise

from splitserve.lab.load.record import Counting, RequestRecord
from splitserve.lab.measure.outcomes import standing

Event = tuple[float, int]
"""Arrival in seconds of the run, and new tokens."""


def token_events(record: RequestRecord) -> list[Event]:
    """The events with tokens, in order."""
    return [event for event in record.events if event[1] > 0]


def ttft_user(record: RequestRecord) -> float:
    """Due to first token: what a user waits, the client's own lag included. Failed: infinite."""
    return _first_since(record, record.intended_s)


def ttft_service(record: RequestRecord) -> float:
    """Sent to first token. Failed: infinite."""
    return _first_since(record, record.sent_s)


def answer_wait(record: RequestRecord) -> float | None:
    """Due to the first token that is no reasoning; None where the answer is all reasoning."""
    if not standing(record).served:
        return math.inf
    return None if record.answer_s is None else record.answer_s - record.intended_s


def end_to_end_user(record: RequestRecord) -> float:
    """Due to last token. Usage and end of the stream come later and do not count."""
    return _last_since(record, record.intended_s)


def end_to_end_service(record: RequestRecord) -> float:
    """Sent to last token."""
    return _last_since(record, record.sent_s)


def gaps(record: RequestRecord) -> list[float] | None:
    """Between token-bearing events, in seconds. None where unknown: failed or miscounted."""
    if not standing(record).gaps:
        return None
    return [later - earlier for (earlier, _), (later, _) in pairwise(token_events(record))]


def first_gap(record: RequestRecord) -> float | None:
    """First to second event: where a split that answers early hides its hand-off. None for one
    event; failed: infinite."""
    if not standing(record).served:
        return math.inf
    found = gaps(record)
    return found[0] if found else None


def token_gaps(record: RequestRecord) -> list[float] | None:
    """One value per token after the first event: an event's gap shared by its tokens.

    None where tokens were not counted but guessed: such gaps are between chunks, not tokens.
    """
    found = gaps(record)
    if found is None or record.counting is Counting.EVENTS:
        return None
    counts = [count for _, count in token_events(record)[1:]]
    return [gap / count for gap, count in zip(found, counts, strict=True) for _ in range(count)]


def time_per_token(record: RequestRecord) -> float | None:
    """(t_m - t_1) / tokens after the first event; None for one event or an unknown count.

    Where every event was guessed to be one token and the server's usage says otherwise, usage wins.
    """
    events = token_events(record)
    if not standing(record).served or len(events) < 2:
        return None
    if record.counting is not Counting.EVENTS:
        tokens = sum(count for _, count in events[1:])
    elif record.output_tokens is not None:
        tokens = record.output_tokens - 1
    else:
        return None
    return (events[-1][0] - events[0][0]) / tokens if tokens > 0 else None


def tokens_per_event(record: RequestRecord) -> float | None:
    """Mean over the token-bearing events; None without any, or without a count."""
    events = token_events(record)
    if not events or record.counting is Counting.EVENTS:
        return None
    return sum(count for _, count in events) / len(events)


def rebinned(events: list[Event], size: int) -> list[Event]:
    """Token-bearing events put together until each has at least ``size`` tokens (but the first,
    which stays as it is, and the last): how a coarser sender would have shown them."""
    joined: list[Event] = events[:1]
    waiting = 0
    for at, (t_s, count) in enumerate(events[1:], start=2):
        waiting += count
        if waiting >= size or at == len(events):
            joined.append((t_s, waiting))
            waiting = 0
    return joined


def _first_since(record: RequestRecord, start_s: float | None) -> float:
    events = token_events(record)
    if not standing(record).served or not events or start_s is None:
        return math.inf
    return events[0][0] - start_s


def _last_since(record: RequestRecord, start_s: float | None) -> float:
    events = token_events(record)
    if not standing(record).served or not events or start_s is None:
        return math.inf
    return events[-1][0] - start_s
