"""The ``metrics`` of an answer: vLLM's five names, and ours, where somebody told."""

import json
from typing import Any

import httpx
import pytest

from frontend.conftest import Serve
from frontend.scripted import ScriptedGenerator, chunks, saying
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.request_metrics import request_metrics
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.control import Began
from splitserve.protocol.course import Course, WorkerPart
from splitserve.protocol.handoff import PrefillDone

R = RequestId("r")
TOLD = FrontendConfig(enable_per_request_metrics=True)


def part(
    name: str,
    sent: float,
    spoke: float | None,
    *,
    queue_s: float | None = None,
    first_s: float | None = None,
    call_s: float | None = None,
) -> WorkerPart:
    told = Began(R, queue_s, first_s, call_s)
    return WorkerPart(WorkerId(name), sent, spoke, told)


def done(exposed_s: float, **flags: bool) -> PrefillDone:
    return PrefillDone(R, HandoffId("h"), 0, 0.0, 0.0, exposed_s, **flags)


def split(**changes: Any) -> Course:
    values: dict[str, Any] = {
        "arrived": 1.001,
        "begun": 1.003,
        "attempted": 1.003,
        "first": 1.2,
        "prefill": part("p0", 1.010, 1.2, queue_s=0.05, first_s=0.13),
        "decode": part("d0", 1.003, 1.25, queue_s=0.2, first_s=0.02),
        "handoff": done(0.004),
    }
    return Course(**(values | changes))


def test_vllms_names_have_vllms_meaning() -> None:
    whole = Course(first=1.2, whole=part("c0", 1.0, 1.2, queue_s=0.5, first_s=0.5))
    told = request_metrics(whole, 1.0, 2.2, 10)
    # The same request as in vLLM's own test of these five.
    assert told["queue_time_ms"] == 500
    assert told["time_to_first_token_ms"] == 500
    assert told["generation_time_ms"] == 1000
    assert told["mean_itl_ms"] == pytest.approx(1000 / 9, abs=1e-3)
    assert told["tokens_per_second"] == pytest.approx(10 / 1.5, abs=1e-3)
    assert told["worker"] == "c0"


def test_one_token_has_no_gap() -> None:
    whole = Course(first=1.2, whole=part("c0", 1.0, 1.2, queue_s=0.0, first_s=0.2))
    told = request_metrics(whole, 1.0, 1.2, 1)
    assert "mean_itl_ms" not in told
    assert told["tokens_per_second"] == 5


def test_a_split_request_tells_of_both_workers_and_the_hand_off() -> None:
    told = request_metrics(split(), 1.0, 2.0, 5)
    shown = {name: told[name] for name in told if name.endswith("_ms")}
    assert shown == {
        "queue_time_ms": 50,
        "time_to_first_token_ms": 130,
        "generation_time_ms": 800,
        "mean_itl_ms": 200,
        "gateway_ttft_ms": 200,
        "admission_ms": 10,
        "room_wait_ms": 2,
        "grant_time_ms": 7,
        "prefill_queue_time_ms": 50,
        "prefill_time_ms": 130,
        "prefill_call_ms": 190,
        "decode_queue_time_ms": 200,
        "decode_first_step_ms": 20,
        "kv_handoff_ms": 30,
        "kv_handoff_upper_ms": 50,
        "kv_exposed_ms": 4,
    }
    assert (told["prefill_worker"], told["decode_worker"]) == ("p0", "d0")
    assert told["first_token_after_handoff"] is False


def test_over_http_the_hand_off_ends_with_decodes_token() -> None:
    course = split(
        first=1.25,
        prefill=part("p0", 1.010, 1.25, queue_s=0.05, first_s=0.13, call_s=0.19),
        decode=part("d0", 1.003, 1.26, queue_s=0.03, first_s=0.008, call_s=0.045),
        handoff=done(0.05, until_token=True, first_waited=True),
    )
    told = request_metrics(course, 1.0, 2.0, 5)
    assert told["prefill_call_ms"] == 190
    assert (told["kv_handoff_upper_ms"], told["kv_handoff_ms"]) == (50, 42)
    assert (told["handoff_gap_ms"], told["decode_call_ms"]) == (5, 45)
    assert told["time_to_first_token_ms"] == 190  # from scheduled: the wait for KV is in it
    assert told["first_token_after_handoff"] is True
    assert "kv_exposed_ms" not in told


def test_what_nobody_told_is_left_out() -> None:
    course = split(
        prefill=part("p0", 1.010, 1.2, call_s=0.19),
        decode=part("d0", 1.003, 1.25),
        handoff=done(0.05, until_token=True),
    )
    told = request_metrics(course, 1.0, 2.0, 5)
    assert {"queue_time_ms", "prefill_time_ms", "kv_handoff_ms"}.isdisjoint(told)
    assert (told["kv_handoff_upper_ms"], told["prefill_call_ms"]) == (50, 190)


def test_an_answer_that_ends_with_its_first_token_has_no_hand_off() -> None:
    course = split(decode=part("d0", 1.003, None), handoff=done(0.0, until_token=True))
    told = request_metrics(course, 1.0, 1.2, 1)
    assert not any(name.startswith("kv_") for name in told)


def test_failed_attempts_are_told_apart() -> None:
    course = split(begun=0.703, arrived=0.7, fallbacks={"other_prefill: prefill_lost": 1})
    told = request_metrics(course, 0.69, 2.0, 5)
    assert (told["retry_ms"], told["admission_ms"], told["room_wait_ms"]) == (300, 20, 3)
    assert told["fallbacks"] == {"other_prefill: prefill_lost": 1}


def test_nothing_is_told_of_what_never_began() -> None:
    assert request_metrics(Course(), 1.0, 1.0, 0) == {}


def noting(ids: list[int]) -> ScriptedGenerator:
    """A generator that notes a course where it is given one."""
    generator = ScriptedGenerator(saying(ids))
    inner = generator.script

    def script(request: Any) -> Any:
        course = generator.courses[-1]
        if course is not None:
            course.whole, course.first = part("c0", 0.0, 0.1, queue_s=0.1, first_s=0.2), 0.0
        return inner(request)

    generator.script = script
    return generator


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_a_stream_tells_with_its_usage_and_only_there(serve: Serve, path: str) -> None:
    live = serve(noting([5, 6, 7]), config=TOLD)
    asked = {"max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
    asked |= {"prompt": "x"} if path == "completions" else {"messages": [_hello()]}
    text = httpx.post(f"{live.url}/v1/{path}", json=asked).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert [bool(event.get("metrics")) for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["metrics"]["queue_time_ms"] == 100


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_a_whole_answer_tells_in_its_body(serve: Serve, path: str) -> None:
    live = serve(noting([5, 6, 7]), config=TOLD)
    asked: dict[str, Any] = {"max_tokens": 3}
    asked |= {"prompt": "x"} if path == "completions" else {"messages": [_hello()]}
    told = httpx.post(f"{live.url}/v1/{path}", json=asked).json()["metrics"]
    assert told["time_to_first_token_ms"] == 200


@pytest.mark.parametrize(
    ("config", "more"),
    [(TOLD, {"n": 2}), (TOLD, {"prompt": ["x", "y"]}), (FrontendConfig(), {})],
    ids=["several answers", "several prompts", "not switched on"],
)
def test_otherwise_nothing_is_told(
    serve: Serve, config: FrontendConfig, more: dict[str, Any]
) -> None:
    generator = ScriptedGenerator(lambda request: chunks([5], request_id=request.request_id))
    live = serve(generator, config=config)
    answer = httpx.post(f"{live.url}/v1/completions", json={"prompt": "x", "max_tokens": 1} | more)
    assert "metrics" not in answer.json()
    assert set(generator.courses) == {None}


def _hello() -> dict[str, str]:
    return {"role": "user", "content": "x"}
