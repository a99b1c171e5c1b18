"""The unchanged router over fake vLLM instances: all of a request in one place, and coming and
going."""

import asyncio

import msgspec
import pytest
from fake_vllm import Behavior, FakeVllm, token_after
from router_bench import Answer, until
from vllm_bench import bench, expected, prompt, well

from splitserve.errors import CallerError, PeerError
from splitserve.protocol.sampling import StructuredOutputs


@pytest.mark.parametrize(
    ("fake", "path"),
    [
        (FakeVllm(), "/inference/v1/generate"),
        (FakeVllm(generate=False), "/v1/completions"),
        (FakeVllm(version="0.23.0"), "/v1/completions"),
    ],
    ids=["generate", "switched_off", "older"],
)
async def test_an_answer_comes_from_the_best_endpoint_there_is(fake: FakeVllm, path: str) -> None:
    async with bench(colocated=fake) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=3)).ended()
        assert answer.tokens == expected(answer.request)
        assert answer.chunks[-1].finish_reason == "length"
        assert [call.path for call in fake.calls] == [path]
        assert fake.calls[0].headers["X-Request-Id"] == "r"
        await until(lambda: made.router.ledger.empty)


async def test_cached_tokens_are_told_at_the_end() -> None:
    tail = asyncio.Event()
    fake = FakeVllm(behave=lambda call: Behavior(cached=16, tail=tail))
    async with bench(colocated=fake) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await answer.has(3)
        tail.set()
        await answer.ended()
        assert answer.chunks[-1].cached_tokens == 16


async def test_a_client_that_leaves_ends_the_request_at_vllm() -> None:
    fake = FakeVllm(behave=lambda call: Behavior(tail=asyncio.Event()))
    async with bench(colocated=fake) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await answer.has(3)
        await answer.leave()
        await fake.see(lambda: fake.calls[0].gone)
        assert made.router.ledger.empty


async def test_what_vllm_refuses_is_the_callers_to_mend() -> None:
    fake = FakeVllm(behave=lambda call: Behavior(status=400, error="no such grammar"))
    async with bench(colocated=fake) as made:
        answer = await Answer(made.router, prompt("r")).ended()
        assert isinstance(answer.error, CallerError)
        assert "no such grammar" in str(answer.error)


async def test_an_answer_that_breaks_off_goes_on_elsewhere() -> None:
    broken = FakeVllm(behave=lambda call: Behavior(cut=2))
    whole = FakeVllm(usage=0.9)
    async with bench(colocated=broken, decode=whole) as made:
        answers = [Answer(made.router, prompt(f"r{i}", max_tokens=5)) for i in range(2)]
        for answer in answers:
            await answer.ended()
            assert answer.tokens == expected(answer.request)
        replayed = next(call for call in whole.calls if len(call.prompt) > 20)
        assert replayed.prompt[20:] == [token_after(20), token_after(21)]
        assert replayed.sampling["max_tokens"] == 3


async def test_an_error_in_the_stream_is_a_failure_of_the_instance() -> None:
    fake = FakeVllm(behave=lambda call: Behavior(tokens=2, finish="error", error="it broke"))
    async with bench(colocated=fake) as made:
        answer = await Answer(made.router, prompt("r")).ended()
        assert isinstance(answer.error, PeerError)
        assert answer.tokens == expected(answer.request)[:1]


async def test_a_structured_answer_is_not_begun_again_in_the_middle() -> None:
    broken = FakeVllm(behave=lambda call: Behavior(cut=2))
    other = FakeVllm(behave=lambda call: Behavior(cut=2))
    async with bench(colocated=broken, decode=other) as made:
        request = prompt("r", max_tokens=5)
        held = msgspec.structs.replace(
            request.sampling, structured_outputs=StructuredOutputs(json_object=True)
        )
        answer = await Answer(made.router, msgspec.structs.replace(request, sampling=held)).ended()
        assert isinstance(answer.error, PeerError)
        assert len(broken.calls) + len(other.calls) == 1


async def test_a_dead_instance_is_lost_and_found_again_in_a_new_life() -> None:
    fake = FakeVllm(behave=well)
    async with bench(colocated=fake) as made:
        await fake.stop()
        await until(lambda: made.router.ready() is not None)
        fake.started = 2.0
        await fake.start()
        await until(lambda: made.router.ready() is None)
        answer = await Answer(made.router, prompt("r")).ended()
        assert answer.tokens == expected(answer.request)


async def test_an_engine_that_died_behind_its_endpoint_is_lost() -> None:
    fake = FakeVllm()
    async with bench(colocated=fake) as made:
        fake.healthy = False
        await until(lambda: made.router.ready() is not None)
        assert "not connected" in str(made.router.ready())


async def test_requests_there_fail_over_when_the_instance_is_dropped() -> None:
    hanging = FakeVllm(behave=lambda call: Behavior(tail=asyncio.Event()))
    other = FakeVllm(usage=0.9)
    async with bench(colocated=hanging, decode=other) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await answer.has(3)
        address = f"vllm+{hanging.url}"
        there = hanging if hanging.calls else other
        assert there is hanging
        await made.router.workers.remove(address)
        await answer.ended()
        assert answer.tokens == expected(answer.request)
