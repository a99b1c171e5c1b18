"""Admission in the router: what clients are told and what workers are sent."""

import msgspec
import pytest
from router_bench import Answer, Bench, until
from scripted_worker import ScriptedWorker, chunk_of, prompt, token_at

from splitserve.errors import OverloadError
from splitserve.protocol.control import Submit
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import Prefill, Reserve
from splitserve.router.handoff.orchestrator import Router


def of(name: str, *, owner: str = "", priority: int = 0, max_tokens: int = 1) -> GenerateRequest:
    return msgspec.structs.replace(
        prompt(name, max_tokens=max_tokens), owner=owner, priority=priority
    )


def answer(worker: ScriptedWorker, submit: Submit) -> None:
    """All that is missing, and that there is room again."""
    request = submit.request
    worker.tokens(chunk_of(request.request_id, 0, request.sampling.max_tokens, finish="length"))
    worker.report()


async def one_place(bench: Bench, **settings: object) -> tuple[Router, ScriptedWorker]:
    """A worker with room for one prompt."""
    worker = await bench.worker("c0", "colocated", free=2)
    return await bench.router(**settings), worker


async def learned(bench: Bench, router: Router, worker: ScriptedWorker, seconds: float) -> None:
    """The router has seen an answer that took so long."""
    first = Answer(router, of("learn"))
    submit = await worker.expect(Submit)
    bench.clock.advance(seconds)
    answer(worker, submit)
    await first.ended()
    await until(lambda: router.ledger.recent_tokens(worker.name) == 0)


async def test_who_would_come_too_late_is_refused_at_once_and_told_when_to_come(
    bench: Bench,
) -> None:
    router, worker = await one_place(bench, ttft_deadline_s=10.0)
    await learned(bench, router, worker, 4.0)
    answers = [Answer(router, of(name)) for name in "abcd"]
    refused = (await answers[3].ended()).error
    assert isinstance(refused, OverloadError)
    assert refused.status == 429
    assert "about 12.0 s, too late to be sure of the limit of 10 s" in refused.message
    assert refused.retry_after_s == pytest.approx(12.0 - 9.0)
    assert (router.open_requests, router.waiting_requests) == (3, 2)
    assert bench.notes.admissions[-1] == ("refused", "deadline")
    for nth, name in enumerate("abc", start=1):
        submit = await worker.expect(Submit, nth)
        assert submit.request.request_id == name
        answer(worker, submit)
    for waiting in answers[:3]:
        assert (await waiting.ended()).error is None


async def test_who_waits_is_told_as_soon_as_it_has_become_too_late(bench: Bench) -> None:
    router, worker = await one_place(bench, ttft_deadline_s=10.0)
    running = Answer(router, of("a", max_tokens=2))
    submit = await worker.expect(Submit)
    worker.tokens(chunk_of("a", 0))
    await running.has(1)
    waiting = [Answer(router, of(name)) for name in "bcd"]
    await until(lambda: router.waiting_requests == 3)
    bench.clock.advance(6.0)
    answer(worker, submit)
    await worker.expect(Submit, 1)
    router.tick()
    refused = (await waiting[2].ended()).error
    assert isinstance(refused, OverloadError)
    assert router.waiting_requests == 1
    assert (await running.ended()).error is None
    for left in waiting[:2]:
        await left.leave()


async def test_a_turn_that_comes_after_the_deadline_is_passed_on(bench: Bench) -> None:
    router, worker = await one_place(bench, ttft_deadline_s=10.0)
    first, late = Answer(router, of("a", max_tokens=2)), Answer(router, of("b"))
    submit = await worker.expect(Submit)
    worker.tokens(chunk_of("a", 0))
    await first.has(1)
    bench.clock.advance(11.0)
    fresh = Answer(router, of("c"))
    await until(lambda: router.waiting_requests == 2)
    answer(worker, submit)
    again = await worker.expect(Submit, 1)
    assert again.request.request_id == "c"
    assert isinstance((await late.ended()).error, OverloadError)
    answer(worker, again)
    assert (await fresh.ended()).error is None
    assert (await first.ended()).error is None


async def test_lower_priority_numbers_go_first_and_owners_take_turns(bench: Bench) -> None:
    router, worker = await one_place(bench)
    asked = [of(f"a{n}", owner="many") for n in range(5)]
    asked += [of("b0", owner="one"), of("urgent", owner="many", priority=-1)]
    answers = [Answer(router, request) for request in asked]
    order: list[str] = []
    for nth in range(len(asked)):
        submit = await worker.expect(Submit, nth)
        await until(lambda nth=nth: router.open_requests == len(asked) - nth)  # type: ignore[misc]
        order.append(submit.request.request_id)
        answer(worker, submit)
    for reader in answers:
        assert (await reader.ended()).error is None
    assert order[:2] == ["a0", "urgent"]
    assert "b0" in order[2:4]
    assert [name for name in order if name[0] == "a"] == ["a0", "a1", "a2", "a3", "a4"]


async def test_a_decode_worker_whose_seats_are_full_is_not_asked_again_before_one_is_free(
    bench: Bench,
) -> None:
    router, p, d = await bench.split()
    first = Answer(router, of("a", max_tokens=4))
    reserve = await d.expect(Reserve)
    d.grant(reserve.handoff)
    await p.expect(Prefill)
    p.tokens(chunk_of("a", 0))
    await first.has(1)
    second = Answer(router, of("b", max_tokens=4))
    d.refuse((await d.expect(Reserve, 1)).handoff, "no_blocks")
    await until(lambda: router.waiting_requests == 1)
    for free in range(1001, 1020):
        d.report(free=free, running=1)
    await until(lambda: _free(router) == 1019)
    assert len(d.all(Reserve)) == 2
    await first.leave()
    again = await d.expect(Reserve, 2)
    assert again.handoff == "b#1"
    await second.leave()


def _free(router: Router) -> int:
    load = router.snapshot()[1].load
    return -1 if load is None else load.kv.free


async def test_a_request_sent_back_keeps_its_place_and_its_deadline(bench: Bench) -> None:
    router, _, d = await bench.split()
    first, second = Answer(router, of("a")), Answer(router, of("b"))
    a = await d.expect(Reserve)
    await d.expect(Reserve, 1)
    bench.clock.advance(20.0)
    third = Answer(router, of("c"))
    await d.expect(Reserve, 2)
    d.refuse(a.handoff, "no_blocks")
    await until(lambda: router.waiting_requests == 1)
    fourth = Answer(router, of("d"))
    await until(lambda: router.waiting_requests == 2)
    await second.leave()
    assert (await d.expect(Reserve, 3)).handoff == "a#1"
    assert router.waiting_requests == 1
    d.refuse(d.all(Reserve)[3].handoff, "no_blocks")
    await until(lambda: router.waiting_requests == 2)
    bench.clock.advance(10.0)
    router.tick()
    assert isinstance((await first.ended()).error, OverloadError)
    assert router.waiting_requests == 1
    await third.leave()
    await fourth.leave()


async def test_what_has_begun_is_never_refused_for_load(bench: Bench) -> None:
    c0 = await bench.worker("c0", "colocated")
    c1 = await bench.worker("c1", "colocated", free=2)
    router = await bench.router(ttft_deadline_s=5.0)
    begun, other = Answer(router, of("a", max_tokens=3)), Answer(router, of("b"))
    await c0.expect(Submit)
    await c1.expect(Submit)
    c0.tokens(chunk_of("a", 0))
    await begun.has(1)
    bench.clock.advance(60.0)
    await c0.stop()
    replay = await c1.expect(Submit, 1)
    assert replay.emitted == (token_at(0),)
    c1.tokens(chunk_of(replay.request.request_id, 1, 2, finish="length"))
    assert (await begun.ended()).error is None
    await other.leave()


async def test_prompts_promised_to_a_prefill_worker_count_before_they_are_sent(
    bench: Bench,
) -> None:
    router, p, d = await bench.split()
    answers = [Answer(router, prompt(f"r{n}", tokens=1500)) for n in range(3)]
    await d.expect(Reserve, 1)
    await until(lambda: router.waiting_requests == 1)
    assert router.ledger.pending_tokens(p.name) == 3000
    for reader in answers:
        await reader.leave()
    assert router.ledger.pending_tokens(p.name) == 0


async def test_the_line_is_told_to_the_observer(bench: Bench) -> None:
    router, worker = await one_place(bench, ttft_deadline_s=100.0)
    await learned(bench, router, worker, 4.0)
    assert bench.notes.admissions == [("admitted", "at_once")]
    first, second = Answer(router, of("a", max_tokens=2)), Answer(router, of("b"))
    submit = await worker.expect(Submit, 1)
    worker.tokens(chunk_of("a", 0))
    await first.has(1)
    assert (bench.notes.depths[-1], bench.notes.predicted[-1]) == (1, 8.0)
    bench.clock.advance(3.0)
    answer(worker, submit)
    answer(worker, await worker.expect(Submit, 2))
    await first.ended()
    await second.ended()
    assert bench.notes.admissions[1:] == [("admitted", "at_once"), ("admitted", "waited")]
    assert bench.notes.waits == [0.0, 0.0, 3.0]
    router.tick()
    assert (bench.notes.depths[-1], bench.notes.predicted[-1]) == (0, 0.0)
