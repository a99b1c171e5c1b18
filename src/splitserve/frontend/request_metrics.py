"""The ``metrics`` of one answer: its Course, as intervals in milliseconds. Pure.

Five names and their meaning are vLLM's (``--enable-per-request-metrics``), for the request as a
whole: ``queue_time_ms`` until an engine began with it, ``time_to_first_token_ms`` from there to the
first token, ``generation_time_ms`` from that to the last, ``mean_itl_ms``, ``tokens_per_second``
(all tokens, without the queue). The others are ours. Each is measured inside one process: no two
clocks are ever compared. What nobody told is left out.
"""

from typing import Any, Final

from splitserve.protocol.course import Course, WorkerPart

MS: Final = 1000.0
_DIGITS: Final = 3


def request_metrics(course: Course, received: float, last: float, tokens: int) -> dict[str, Any]:
    """``received`` and ``last`` (the newest tokens) are times of the course's clock; ``tokens`` is
    the answer's length."""
    asked = course.whole or course.prefill
    if asked is None or course.first is None:
        return {}
    found = {
        **_as_vllm(course, asked, course.first, last, tokens),
        **_gateway(course, asked, received, course.first),
        **(_handoff(course) if course.prefill is not None else {}),
    }
    shown: dict[str, Any] = {
        f"{name}_ms": round(MS * max(0.0, seconds), _DIGITS)
        for name, seconds in found.items()
        if seconds is not None
    }
    if (each := _tokens_per_second(found, tokens)) is not None:
        shown["tokens_per_second"] = each
    return shown | _who(course)


def _as_vllm(
    course: Course, asked: WorkerPart, first: float, last: float, tokens: int
) -> dict[str, float | None]:
    told = asked.told
    queue_s = None if told is None else told.queue_s
    first_s = None if told is None else told.first_s
    if course.handoff is not None and course.handoff.first_waited and queue_s is not None:
        first_s = first - asked.sent - queue_s
    return {
        "queue_time": queue_s,
        "time_to_first_token": first_s,
        "generation_time": last - first,
        "mean_itl": (last - first) / (tokens - 1) if tokens > 1 else None,
    }


def _tokens_per_second(found: dict[str, float | None], tokens: int) -> float | None:
    first_s, generation_s = found["time_to_first_token"], found["generation_time"]
    if first_s is None or generation_s is None or first_s + generation_s <= 0:
        return None
    return round(tokens / (first_s + generation_s), _DIGITS)


def _gateway(
    course: Course, asked: WorkerPart, received: float, first: float
) -> dict[str, float | None]:
    """``admission`` ends where the worker that computed the prompt was asked. In it are
    ``room_wait``, when no worker had room, and ``grant_time``, until decode had reserved some.
    What failed before is ``retry``."""
    attempted = asked.sent if course.attempted is None else course.attempted
    begun = attempted if course.begun is None else course.begun
    retry_s = attempted - begun
    return {
        "gateway_ttft": first - received,
        "admission": asked.sent - received - retry_s,
        "room_wait": _between(course.arrived, begun),
        "grant_time": None if course.prefill is None else asked.sent - attempted,
        "retry": retry_s if retry_s > 0 else None,
        "worker_call": None if course.prefill is not None else _between(asked.sent, asked.spoke),
    }


def _handoff(course: Course) -> dict[str, float | None]:
    prefill, decode, done = course.prefill, course.decode, course.handoff
    assert prefill is not None
    found = {
        "prefill_queue_time": None if prefill.told is None else prefill.told.queue_s,
        "prefill_time": None if prefill.told is None else prefill.told.first_s,
        "prefill_call": _call_s(prefill, done is not None and done.until_token),
    }
    if decode is None or done is None or (decode.spoke is None and not done.first_waited):
        return found
    told = decode.told
    step_s = None if told is None else told.first_s
    call_s = None if told is None else told.call_s
    upper_s = done.exposed_s if done.until_token else _between(prefill.spoke, decode.spoke)
    gap_s = upper_s - call_s if done.until_token and upper_s and call_s is not None else None
    return found | {
        "decode_queue_time": None if told is None else told.queue_s,
        "decode_first_step": step_s,
        "decode_call": call_s,
        "handoff_gap": gap_s,
        "kv_handoff": None if upper_s is None or step_s is None else upper_s - step_s,
        "kv_handoff_upper": upper_s,
        "kv_exposed": None if done.until_token else done.exposed_s,
    }


def _call_s(prefill: WorkerPart, over_http: bool) -> float | None:
    """From asked to answered. A worker behind HTTP times that itself: it may answer long before the
    token leaves."""
    if prefill.told is not None and prefill.told.call_s is not None:
        return prefill.told.call_s
    return None if over_http else _between(prefill.sent, prefill.spoke)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


def _who(course: Course) -> dict[str, Any]:
    """Names, and what went wrong before it went right."""
    named = {
        "worker": course.whole,
        "prefill_worker": course.prefill,
        "decode_worker": course.decode,
    }
    found: dict[str, Any] = {name: part.worker for name, part in named.items() if part is not None}
    if course.handoff is not None:
        found["first_token_after_handoff"] = course.handoff.first_waited
    return found | ({"fallbacks": course.fallbacks} if course.fallbacks else {})
