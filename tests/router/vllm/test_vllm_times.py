"""What vLLM says of its times, and what this gateway sees of them, in the request's course."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from fake_vllm import Behavior, Call, FakeVllm
from vllm_bench import VllmBench, bench, expected, prompt, well

from splitserve.protocol.course import Course
from splitserve.protocol.generate import GenerateRequest
from splitserve.router.workers.vllm.settings import parse_address

TIMES = {"queue_time_ms": 30.0, "time_to_first_token_ms": 100.0, "generation_time_ms": 5.0}


def telling(call: Call) -> Behavior:
    return replace(well(call), metrics=TIMES)


async def followed(made: VllmBench, request: GenerateRequest) -> tuple[Course, list[int]]:
    course = Course()
    chunks = [chunk async for chunk in made.router.generate(request, course)]
    return course, [token for chunk in chunks for token in chunk.token_ids]


async def test_a_whole_request_has_vllms_own_times() -> None:
    async with bench(colocated=FakeVllm(behave=telling)) as made:
        course, tokens = await followed(made, request := prompt("r", max_tokens=3))
    assert tokens == expected(request)
    assert course.whole is not None
    assert course.whole.told is not None
    assert (course.whole.told.queue_s, course.whole.told.first_s) == (0.03, 0.1)


@pytest.mark.parametrize("concurrent", [False, True])
async def test_both_legs_tell_their_times_and_the_gateway_their_calls(concurrent: bool) -> None:
    p, d = FakeVllm(behave=telling), FakeVllm(behave=telling)
    async with bench(prefill=p, decode=d, concurrent=concurrent) as made:
        course, tokens = await followed(made, request := prompt("r", max_tokens=4))
    assert tokens == expected(request)
    assert course.prefill is not None
    assert course.decode is not None
    assert course.handoff is not None
    assert course.handoff.until_token
    for part in (course.prefill, course.decode):
        assert part.told is not None
        assert (part.told.queue_s, part.told.first_s) == (0.03, 0.1)
        assert part.told.call_s is not None
        assert part.told.call_s > 0


async def test_vllm_that_tells_nothing_leaves_the_calls() -> None:
    async with bench(prefill=FakeVllm(behave=well), decode=FakeVllm()) as made:
        course, _ = await followed(made, prompt("r", max_tokens=4))
    assert course.prefill is not None
    assert course.prefill.told is not None
    assert (course.prefill.told.queue_s, course.prefill.told.first_s) == (None, None)
    assert course.prefill.told.call_s is not None


async def test_a_first_token_that_waits_for_decode_is_known_to_have_waited() -> None:
    request = prompt("r", max_tokens=4)
    sampling = msgspec.structs.replace(request.sampling, presence_penalty=0.5)
    async with bench(prefill=FakeVllm(behave=telling), decode=FakeVllm(behave=telling)) as made:
        course, _ = await followed(made, msgspec.structs.replace(request, sampling=sampling))
    assert course.handoff is not None
    assert course.handoff.first_waited
    assert course.first is not None
    assert course.prefill is not None
    assert course.first - course.prefill.sent >= course.handoff.exposed_s


async def test_an_answer_is_whole_also_when_nothing_follows_its_last_token() -> None:
    p, d = FakeVllm(behave=well), FakeVllm(behave=lambda call: Behavior(error="too late"))
    async with bench(prefill=p, decode=d) as made:
        course, tokens = await followed(made, request := prompt("r", max_tokens=4))
    assert tokens == expected(request)
    assert course.fallbacks == {}
    assert made.notes.outcomes == [("r", "done")]


@pytest.mark.parametrize(("settings", "path"), [({}, "generate"), ({"tells_times": True}, "v1")])
async def test_times_are_asked_for_where_vllm_tells_them(
    settings: dict[str, Any], path: str
) -> None:
    fake = FakeVllm(behave=telling)
    async with bench(colocated=fake, **settings) as made:
        _, tokens = await followed(made, request := prompt("r", max_tokens=2))
    assert tokens == expected(request)
    assert path in fake.calls[0].path


def test_an_address_says_whether_its_instance_tells_times() -> None:
    assert parse_address("vllm+http://h:1?per_request_metrics=1").tells_times
    assert not parse_address("vllm+http://h:1").tells_times
