"""Where one request's time went, by what its server told of itself (``RequestRecord.metrics``).

    TTFT = lag + gateway + room + retries + grant + queue + prefill [+ hand-off + first step] + rest
    first gap = hand-off + first step + rest

The grant is decode's word that it has reserved room, before prefill begins. The hand-off is in TTFT
where the first token waited for the KV, else in the gap after it. Every part is an interval of one
process's clock; no two clocks are compared. What is left, the residual, is network, HTTP and
whatever else nobody timed: a server whose residual is large explains nothing.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from statistics import median
from typing import Final

from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import first_gap, ttft_user
from splitserve.lab.measure.outcomes import standing

MS: Final = 1000.0

RESIDUAL_S: Final = 0.005
RESIDUAL_SHARE: Final = 0.03
"""The accounting stands while the median residual is within the larger one: seconds, or a share of
the median TTFT."""


class Part(StrEnum):
    """In the order in which they happen."""

    LAG = "client lag"
    GATEWAY = "gateway"
    ROOM = "wait for room"
    RETRIES = "retries"
    GRANT = "decode's grant"
    QUEUE = "queue"
    QUEUE_OR_KV = "queue or KV wait"
    CALL = "queue and prefill"
    PREFILL = "prefill"
    HANDOFF = "hand-off"
    STEP = "first decode step"
    RESIDUAL = "residual"


GROUPS: Final[Mapping[Part, str]] = {
    Part.LAG: "client",
    Part.GATEWAY: "proxy",
    Part.ROOM: "queue",
    Part.RETRIES: "proxy",
    Part.GRANT: "hand-off",
    Part.QUEUE: "queue",
    Part.QUEUE_OR_KV: "queue",
    Part.CALL: "prefill",
    Part.PREFILL: "prefill",
    Part.HANDOFF: "hand-off",
    Part.STEP: "hand-off",
    Part.RESIDUAL: "residual",
}
"""What a change of TTFT is split into. CALL: a worker that does not tell its queue apart.
QUEUE_OR_KV: a server that is no gateway of ours tells one queue, and behind a split that is
decode's, which has the wait for KV in it."""

Parts = dict[Part, float]
"""Seconds; they add up to the whole."""


def ttft_parts(record: RequestRecord) -> Parts | None:
    """Of the time from due to first token. None where no server told, or the request failed."""
    told = record.metrics
    if not told or not standing(record).served or record.lag_s is None:
        return None
    whole_s = ttft_user(record)
    computed = _computed(told)
    if not computed or not math.isfinite(whole_s):
        return None
    found = {
        Part.LAG: record.lag_s,
        **_admitted(told),
        **computed,
        **(_handed_over(told) if told.get("first_token_after_handoff") else {}),
    }
    return _closed(found, whole_s)


def gap_parts(record: RequestRecord) -> Parts | None:
    """Of the first gap, where the hand-off falls into it; None elsewhere, or where nobody told."""
    told, gap_s = record.metrics, first_gap(record)
    if not told or gap_s is None or not math.isfinite(gap_s):
        return None
    found = {} if told.get("first_token_after_handoff") else _handed_over(told)
    return _closed(found, gap_s) if found else None


def handoff_s(record: RequestRecord) -> float | None:
    """From prefill's end to where decode had the KV; where decode did not tell its first step,
    that is in it. None for a request without a hand-off, or a server that does not tell."""
    return _handoff(record.metrics or {})


def bytes_s(record: RequestRecord) -> float | None:
    """From prefill's first token to the last byte in place, as the prefill worker saw it: what of
    ``handoff_s`` was transfer. None where nobody saw that."""
    return _seconds(record.metrics or {}, "kv_exposed_ms")


def grouped(parts: Parts) -> dict[str, float]:
    """The same by GROUPS."""
    found: dict[str, float] = {}
    for part, seconds in parts.items():
        found[GROUPS[part]] = found.get(GROUPS[part], 0.0) + seconds
    return found


def unexplained(records: Iterable[RequestRecord]) -> str | None:
    """Why the parts of these requests must not be shown: their residual is too large, so that the
    accounting has a hole. None when it stands, or nobody told anything."""
    known = [(r, parts) for r in records if (parts := ttft_parts(r)) is not None]
    if not known:
        return None
    rest_s = median(parts[Part.RESIDUAL] for _, parts in known)
    limit_s = max(RESIDUAL_S, RESIDUAL_SHARE * median(ttft_user(r) for r, _ in known))
    if abs(rest_s) <= limit_s:
        return None
    return (
        f"the median residual of {len(known)} requests is {MS * rest_s:.3g} ms, more than "
        f"{MS * limit_s:.3g} ms"
    )


def _admitted(told: Mapping[str, float]) -> dict[Part, float | None]:
    """What the gateway did before a worker was asked for the prompt; empty without such a gateway.
    All but its own work is zero where it did not happen, so that runs can be put together."""
    whole = _seconds(told, "admission_ms")
    if whole is None:
        return {}
    room, grant = _seconds(told, "room_wait_ms") or 0.0, _seconds(told, "grant_time_ms") or 0.0
    return {
        Part.GATEWAY: whole - room - grant,
        Part.ROOM: room,
        Part.RETRIES: _seconds(told, "retry_ms") or 0.0,
        Part.GRANT: grant if "grant_time_ms" in told else None,
    }


def _computed(told: Mapping[str, float]) -> dict[Part, float | None]:
    """The prompt's way through the worker that computed it; empty where nobody told."""
    split = "prefill_call_ms" in told or "prefill_time_ms" in told
    queue = _seconds(told, "prefill_queue_time_ms" if split else "queue_time_ms")
    prefill = _seconds(told, "prefill_time_ms" if split else "time_to_first_token_ms")
    call = _seconds(told, "prefill_call_ms" if split else "worker_call_ms")
    if queue is None and prefill is None:
        return {} if call is None else {Part.CALL: call}
    ours = "admission_ms" in told
    return {Part.QUEUE if ours else Part.QUEUE_OR_KV: queue, Part.PREFILL: prefill}


def _handed_over(told: Mapping[str, float]) -> dict[Part, float | None]:
    return {Part.HANDOFF: _handoff(told), Part.STEP: _seconds(told, "decode_first_step_ms")}


def _handoff(told: Mapping[str, float]) -> float | None:
    known = _seconds(told, "kv_handoff_ms")
    return _seconds(told, "kv_handoff_upper_ms") if known is None else known


def _closed(found: Mapping[Part, float | None], whole_s: float) -> Parts | None:
    parts = {part: seconds for part, seconds in found.items() if seconds is not None}
    if not parts:
        return None
    return parts | {Part.RESIDUAL: whole_s - math.fsum(parts.values())}


def _seconds(told: Mapping[str, float], name: str) -> float | None:
    value = told.get(name)
    return None if value is None else value / MS
