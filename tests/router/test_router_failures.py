"""What becomes of requests when workers refuse, fail, vanish or fall silent, or the client goes."""

from collections.abc import Awaitable, Callable

import pytest
from router_bench import Answer, Bench, until
from scripted_worker import ScriptedWorker, chunk_of, prompt, token_at

from splitserve.errors import CallerError, OverloadError, PeerError
from splitserve.ids import RequestId
from splitserve.protocol.control import Hello, Submit
from splitserve.protocol.generate import TokenChunk
from splitserve.protocol.handoff import Prefill, Reserve
from splitserve.router.handoff.orchestrator import Router


def expected(n: int) -> list[int]:
    return [token_at(i) for i in range(n)]


def finish(worker: ScriptedWorker, request_id: str, start: int, end: int) -> None:
    """The rest of an answer, in one step."""
    worker.tokens(chunk_of(request_id, start, end - start, finish="length"))


async def granted(p: ScriptedWorker, d: ScriptedWorker, nth: int = 0) -> Prefill:
    """The ``nth`` request at ``d`` to where ``p`` computes."""
    reserve = await d.expect(Reserve, nth)
    before = len(p.all(Prefill))
    d.grant(reserve.handoff)
    return await p.expect(Prefill, before)


async def two_pairs(bench: Bench) -> tuple[Router, list[ScriptedWorker], list[ScriptedWorker]]:
    prefills = [await bench.worker(f"p{n}", "prefill") for n in range(2)]
    decodes = [await bench.worker(f"d{n}", "decode", linked=("p0", "p1")) for n in range(2)]
    return await bench.router(), prefills, decodes


# Room


async def test_a_refused_request_waits_for_room_and_is_not_asked_again_before(
    bench: Bench,
) -> None:
    router, _, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=3))
    d.refuse((await d.expect(Reserve)).handoff, "no_blocks")
    await until(lambda: router.waiting_requests == 1)
    d.report(free=1000, running=1)
    d.report(free=999)
    await until(lambda: _free(router) == 999)
    assert len(d.all(Reserve)) == 1
    d.report(free=1001)
    again = await d.expect(Reserve, 1)
    assert again.handoff == "r#1"
    d.grant(again.handoff)
    await answer.leave()
    assert bench.notes.fallbacks == []


def _free(router: Router) -> int:
    load = router.snapshot()[1].load
    return -1 if load is None else load.kv.free


async def test_a_refused_request_goes_to_another_worker_that_has_room(bench: Bench) -> None:
    router, (p0, p1), (d0, d1) = await two_pairs(bench)
    answer = Answer(router, prompt("r"))
    d0.refuse((await d0.expect(Reserve)).handoff, "no_blocks")
    reserve = await d1.expect(Reserve)
    assert reserve.handoff == "r#1"
    assert not p0.all(Prefill)
    assert not p1.all(Prefill)
    await answer.leave()
    await until(lambda: d1.aborted() == ["r~1"])
    assert d0.aborted() == []


async def test_requests_wait_in_order_until_another_one_ends(bench: Bench) -> None:
    router, c = await bench.colocated(free=2)
    answers = [Answer(router, prompt(name, tokens=20, max_tokens=1)) for name in "abc"]
    await c.expect(Submit)
    assert router.waiting_requests == 2
    for nth, name in enumerate("abc"):
        submit = await c.expect(Submit, nth)
        assert submit.request.request_id == name
        assert len(c.all(Submit)) == nth + 1
        finish(c, name, 0, 1)
        c.report(steps=nth)
    for answer in answers:
        assert (await answer.ended()).error is None


async def test_a_place_that_another_request_leaves_is_taken_without_a_new_report(
    bench: Bench,
) -> None:
    router, c = await bench.colocated(free=2)
    first, second = Answer(router, prompt("a")), Answer(router, prompt("b"))
    await c.expect(Submit)
    assert router.waiting_requests == 1
    await first.leave()
    submit = await c.expect(Submit, 1)
    assert submit.request.request_id == "b"
    await second.leave()


async def test_a_prompt_that_has_begun_to_run_takes_only_the_room_that_is_reported(
    bench: Bench,
) -> None:
    router, c = await bench.colocated(free=2)
    first, second = Answer(router, prompt("a")), Answer(router, prompt("b"))
    await c.expect(Submit)
    c.report(steps=1)
    c.tokens(chunk_of("a", 0))
    await first.has(1)
    assert router.waiting_requests == 1
    c.report(steps=2)
    await c.expect(Submit, 1)
    await first.leave()
    await second.leave()


async def test_granted_room_is_the_workers_own_count_once_it_reports(bench: Bench) -> None:
    router, p, d = await bench.split()
    d.report(free=2)
    await until(lambda: _free(router) == 2)
    first, second = Answer(router, prompt("a")), Answer(router, prompt("b"))
    await granted(p, d)
    assert router.waiting_requests == 1
    d.report(free=2, steps=1)
    await d.expect(Reserve, 1)
    await first.leave()
    await second.leave()


async def test_a_worker_that_refused_is_asked_again_when_a_request_there_ends(
    bench: Bench,
) -> None:
    router, p, d = await bench.split()
    first = Answer(router, prompt("a"))
    await granted(p, d)
    second = Answer(router, prompt("b"))
    d.refuse((await d.expect(Reserve, 1)).handoff, "no_blocks")
    await until(lambda: router.waiting_requests == 1)
    await first.leave()
    reserve = await d.expect(Reserve, 2)
    assert reserve.handoff == "b#1"
    await second.leave()


async def test_a_full_queue_says_come_back_later(bench: Bench) -> None:
    worker = await bench.worker("c0", "colocated", free=2)
    router = await bench.router(max_queued=1)
    answers = [Answer(router, prompt(name)) for name in "abc"]
    refused = await answers[2].ended()
    assert isinstance(refused.error, OverloadError)
    assert (refused.error.status, refused.error.retry_after_s) == (429, 1.0)
    assert router.open_requests == 2
    assert len(worker.all(Submit)) <= 1
    for answer in answers[:2]:
        await answer.leave()


async def test_who_waits_too_long_is_told_so(bench: Bench) -> None:
    router, c = await bench.colocated(free=2)
    first, second = Answer(router, prompt("a")), Answer(router, prompt("b"))
    await c.expect(Submit)
    bench.clock.advance(31)
    router.tick()
    await second.ended()
    assert isinstance(second.error, OverloadError)
    assert second.error.status == 429
    finish(c, "a", 0, 8)
    await first.ended()
    assert first.tokens == expected(8)


async def test_without_any_worker_the_answer_is_503_at_once(bench: Bench) -> None:
    router = await bench.router()
    answer = await Answer(router, prompt("r")).ended()
    assert isinstance(answer.error, OverloadError)
    assert (answer.error.status, str(answer.error)) == (503, "no worker is ready to serve requests")
    assert bench.notes.admissions == [("refused", "no_worker")]
    assert router.open_requests == 0


async def test_a_request_that_takes_too_long_ends_everywhere(bench: Bench) -> None:
    worker = await bench.worker("c0", "colocated")
    router = await bench.router(request_timeout_s=1.0)
    answer = Answer(router, prompt("r"))
    await worker.expect(Submit)
    worker.tokens(chunk_of("r", 0))
    await answer.has(1)
    bench.clock.advance(1.0)
    router.tick()
    await answer.ended()
    assert isinstance(answer.error, PeerError)
    assert "too long" in str(answer.error)
    await until(lambda: worker.aborted() == ["r"])


# The ladder before the first token


async def _lost(worker: ScriptedWorker, request_id: str) -> None:
    await worker.stop()


async def _failed(worker: ScriptedWorker, request_id: str) -> None:
    worker.fail(RequestId(request_id), "engine")


@pytest.mark.parametrize("end", [_lost, _failed])
async def test_another_prefill_worker_takes_over(
    bench: Bench, end: Callable[[ScriptedWorker, str], Awaitable[None]]
) -> None:
    router, (p0, p1), (d0, _) = await two_pairs(bench)
    answer = Answer(router, prompt("r", max_tokens=3))
    await granted(p0, d0)
    await end(p0, "r")
    await until(lambda: bool(bench.notes.fallbacks))
    placement = bench.notes.placements[-1]
    decode = next(w for w in bench.workers if w.name == placement.decode)
    assert placement.prefill == "p1"
    reserve = await decode.expect(Reserve, 1 if decode is d0 else 0)
    assert reserve.writer == "p1"
    await until(lambda: d0.aborted() == ["r"])
    decode.grant(reserve.handoff)
    again = await p1.expect(Prefill)
    assert again.request.request_id == "r~1"
    p1.tokens(chunk_of("r~1", 0, cached=3))
    finish(decode, "r~1", 1, 3)
    await answer.ended()
    assert answer.tokens == expected(3)
    assert answer.chunks[0].cached_tokens == 3
    assert {chunk.request_id for chunk in answer.chunks} == {"r"}


@pytest.mark.parametrize("end", [_lost, _failed])
async def test_decode_recomputes_when_the_only_prefill_worker_ends(
    bench: Bench, end: Callable[[ScriptedWorker, str], Awaitable[None]]
) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=3))
    await granted(p, d)
    d.tokens(TokenChunk(RequestId("r"), 1, (666, 667), "length"))  # after a token never seen
    await until(lambda: len(router.ledger.at(d.name)) == 0)
    await end(p, "r")
    submit = await d.expect(Submit)
    assert (submit.request.request_id, submit.emitted) == ("r~1", ())
    d.tokens(chunk_of("r", 1))  # still of the first attempt: no news
    d.tokens(chunk_of("r~1", 0))
    await answer.has(1)
    finish(d, "r~1", 1, 3)
    await answer.ended()
    assert answer.tokens == expected(3)
    code = "lost" if end is _lost else "engine"
    assert bench.notes.fallbacks == [("recompute", f"prefill_{code}")]


async def test_another_decode_worker_takes_over_before_the_first_token(bench: Bench) -> None:
    router, (p0, p1), (d0, d1) = await two_pairs(bench)
    answer = Answer(router, prompt("r", max_tokens=2))
    await granted(p0, d0)
    await d0.stop()
    reserve = await d1.expect(Reserve)
    await until(lambda: p0.aborted() == ["r"])
    d1.grant(reserve.handoff)
    prefill = next(w for w in (p0, p1) if w.name == reserve.writer)
    await prefill.expect(Prefill, 1 if prefill is p0 else 0)
    prefill.tokens(chunk_of("r~1", 0))
    finish(d1, "r~1", 1, 2)
    await answer.ended()
    assert answer.tokens == expected(2)
    assert bench.notes.fallbacks == [("other_decode", "decode_lost")]


async def test_the_prefill_worker_answers_whole_when_the_only_decode_worker_is_lost(
    bench: Bench,
) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=2))
    await d.expect(Reserve)
    await d.stop()
    submit = await p.expect(Submit)
    assert submit.request.request_id == "r~1"
    finish(p, "r~1", 0, 2)
    await answer.ended()
    assert answer.tokens == expected(2)


@pytest.mark.parametrize("code", ["not_linked", "stale_link", "draining", "duplicate", "novel"])
async def test_a_refused_grant_leads_to_recompute(bench: Bench, code: str) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=2))
    d.refuse((await d.expect(Reserve)).handoff, code)
    worker = p if code in ("draining", "duplicate", "novel", "stale_link") else d
    submit = await worker.expect(Submit)
    finish(worker, submit.request.request_id, 0, 2)
    await answer.ended()
    assert answer.tokens == expected(2)
    assert d.aborted() == []


async def test_what_a_worker_finds_wrong_with_the_request_reaches_the_caller(
    bench: Bench,
) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r"))
    await granted(p, d)
    p.fail(RequestId("r"), "invalid")
    await answer.ended()
    assert isinstance(answer.error, CallerError)
    assert str(answer.error) == "failed: invalid"
    await until(lambda: d.aborted() == ["r"])
    assert bench.notes.fallbacks == []


async def test_too_long_for_the_pool_is_the_callers_error(bench: Bench) -> None:
    router, _, d = await bench.split()
    answer = Answer(router, prompt("r"))
    d.refuse((await d.expect(Reserve)).handoff, "too_long", retryable=False)
    await answer.ended()
    assert isinstance(answer.error, CallerError)


async def test_attempts_are_bounded_and_end_in_one_clear_error(bench: Bench) -> None:
    for n in range(5):
        await bench.worker(f"c{n}", "colocated")
    router = await bench.router()
    answer = Answer(router, prompt("r"))
    for nth in range(3):
        await until(lambda wanted=nth + 1: _submits(bench) == wanted)  # type: ignore[misc]
        worker = next(w for w in bench.workers if w.name == bench.notes.placements[-1].decode)
        worker.fail(worker.all(Submit)[-1].request.request_id, "engine")
    await answer.ended()
    assert _submits(bench) == 3
    assert isinstance(answer.error, PeerError)
    assert "no other worker could go on" in str(answer.error)
    assert bench.notes.fallbacks == [
        ("recompute", "worker_engine"),
        ("recompute", "worker_engine"),
        ("error", "worker_engine"),
    ]


def _submits(bench: Bench) -> int:
    return sum(len(worker.all(Submit)) for worker in bench.workers)


# After the first token


async def test_a_lost_decode_worker_is_replayed_without_a_seam(bench: Bench) -> None:
    router, (p0, _), (d0, d1) = await two_pairs(bench)
    answer = Answer(router, prompt("r", max_tokens=6))
    prefill = await granted(p0, d0)
    p0.tokens(chunk_of("r", 0))
    p0.done(RequestId("r"), prefill.target.handoff)
    d0.tokens(chunk_of("r", 1, 2))
    await answer.has(3)
    await d0.stop()
    submit = await d1.expect(Submit)
    assert submit.request.request_id == "r~1"
    assert list(submit.emitted) == expected(3)
    d1.tokens(chunk_of("r~1", 3, cached=16))
    finish(d1, "r~1", 4, 6)
    await answer.ended()
    assert answer.tokens == expected(6)
    assert [chunk.cached_tokens for chunk in answer.chunks if chunk.index > 0] == [None] * (
        len(answer.chunks) - 1
    )
    assert bench.notes.fallbacks == [("replay", "decode_lost")]


async def test_a_transfer_that_fails_after_the_first_token_is_replayed_on_decode(
    bench: Bench,
) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=3))
    await granted(p, d)
    p.tokens(chunk_of("r", 0))
    p.fail(RequestId("r"), "transfer_failed")
    submit = await d.expect(Submit)
    assert list(submit.emitted) == expected(1)
    assert d.aborted() == ["r"]
    finish(d, "r~1", 1, 3)
    await answer.ended()
    assert answer.tokens == expected(3)
    assert bench.notes.fallbacks == [("replay", "prefill_transfer_failed")]


async def test_a_writer_lost_after_the_first_token_is_replayed_once(bench: Bench) -> None:
    """Gateway and decode worker both notice; only the first counts."""
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=3))
    await granted(p, d)
    p.tokens(chunk_of("r", 0))
    await answer.has(1)
    await p.stop()
    d.fail(RequestId("r"), "writer_lost")
    submit = await d.expect(Submit)
    finish(d, submit.request.request_id, 1, 3)
    await answer.ended()
    assert answer.tokens == expected(3)
    assert len(d.all(Submit)) == 1


async def test_a_prefill_worker_lost_after_decode_spoke_changes_nothing(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=3))
    await granted(p, d)
    p.tokens(chunk_of("r", 0))
    await answer.has(1)
    d.tokens(chunk_of("r", 1))
    await answer.has(2)
    await p.stop()
    await until(lambda: len(router.ledger.at(p.name)) == 0)
    finish(d, "r", 2, 3)
    await answer.ended()
    assert answer.tokens == expected(3)
    assert bench.notes.fallbacks == []


async def test_without_another_worker_a_broken_answer_ends_in_a_peer_error(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r"))
    await c.expect(Submit)
    c.tokens(chunk_of("r", 0, 2))
    await answer.has(2)
    await c.stop()
    await answer.ended()
    assert answer.tokens == expected(2)
    assert isinstance(answer.error, PeerError)
    assert "was lost" in str(answer.error)


async def test_an_abort_nobody_asked_for_is_no_answer(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r"))
    await c.expect(Submit)
    c.tokens(chunk_of("r", 0, finish="abort"))
    await answer.ended()
    assert isinstance(answer.error, PeerError)
    assert answer.tokens == []


# The client goes


async def _to_granting(p: ScriptedWorker, d: ScriptedWorker, answer: Answer) -> set[str]:
    await d.expect(Reserve)
    return {"d0"}


async def _to_prefilling(p: ScriptedWorker, d: ScriptedWorker, answer: Answer) -> set[str]:
    await granted(p, d)
    return {"d0", "p0"}


async def _to_transferring(p: ScriptedWorker, d: ScriptedWorker, answer: Answer) -> set[str]:
    await granted(p, d)
    p.tokens(chunk_of("r", 0))
    await answer.has(1)
    return {"d0", "p0"}


async def _to_decoding(p: ScriptedWorker, d: ScriptedWorker, answer: Answer) -> set[str]:
    prefill = await granted(p, d)
    p.tokens(chunk_of("r", 0))
    p.done(RequestId("r"), prefill.target.handoff)
    d.tokens(chunk_of("r", 1))
    await answer.has(2)
    return {"d0"}


@pytest.mark.parametrize("bring", [_to_granting, _to_prefilling, _to_transferring, _to_decoding])
async def test_a_client_that_goes_is_forgotten_at_every_worker_told(
    bench: Bench,
    bring: Callable[[ScriptedWorker, ScriptedWorker, Answer], Awaitable[set[str]]],
) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r"))
    told = await bring(p, d, answer)
    if bring is _to_decoding:
        await until(lambda: len(router.ledger.at(p.name)) == 0)
    await answer.leave()
    await until(lambda: {w.name for w in (p, d) if w.aborted() == ["r"]} == told)
    assert router.ledger.empty
    assert bench.notes.outcomes == [("r", "cancelled")]


async def test_news_of_a_request_whose_client_has_gone_is_dropped(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r"))
    handoff = (await d.expect(Reserve)).handoff
    await answer.leave()
    d.grant(handoff)
    d.refuse(handoff, "no_blocks")
    d.fail(RequestId("r"), "engine")
    d.tokens(chunk_of("r", 1))
    again = Answer(router, prompt("s", max_tokens=1))
    prefill = await granted(p, d, 1)
    assert prefill.request.request_id == "s"
    finish(p, "s", 0, 1)
    assert (await again.ended()).tokens == expected(1)
    assert len(d.all(Hello)) == 1


async def test_a_client_that_goes_while_recomputing_is_forgotten_there(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r"))
    await granted(p, d)
    p.fail(RequestId("r"), "engine")
    await d.expect(Submit)
    await answer.leave()
    await until(lambda: d.aborted() == ["r", "r~1"])
    assert p.aborted() == []


async def test_a_client_that_goes_while_waiting_leaves_no_trace(bench: Bench) -> None:
    router, c = await bench.colocated(free=2)
    first, second = Answer(router, prompt("a")), Answer(router, prompt("b"))
    await c.expect(Submit)
    assert router.waiting_requests == 1
    await second.leave()
    assert router.waiting_requests == 0
    await first.leave()
    await until(lambda: c.aborted() == ["a"])
    assert len(c.all(Submit)) == 1


# Silence


async def test_a_silent_worker_is_dead_and_its_requests_move_on(bench: Bench) -> None:
    c0 = await bench.worker("c0", "colocated")
    c1 = await bench.worker("c1", "colocated")
    router = await bench.router(request_timeout_s=1e6)
    answer = Answer(router, prompt("r", max_tokens=2))
    await c0.expect(Submit)
    bench.clock.advance(1999)
    router.tick()
    router.tick()
    assert router.warnings() == []
    c1.report(steps=1)
    await until(lambda: _steps(router) == 1)
    bench.clock.advance(2)
    router.tick()
    router.tick()
    submit = await c1.expect(Submit)
    finish(c1, submit.request.request_id, 0, 2)
    await answer.ended()
    assert answer.tokens == expected(2)
    assert bench.notes.fallbacks == [("recompute", "worker_lost")]


def _steps(router: Router) -> int:
    load = router.snapshot()[1].load
    return -1 if load is None else load.steps


async def test_a_gateway_that_slept_does_not_take_its_workers_for_dead(bench: Bench) -> None:
    worker = await bench.worker("c0", "colocated")
    router = await bench.router()
    bench.clock.advance(10_000)
    router.tick()
    worker.report(steps=1)
    await until(lambda: (load := router.snapshot()[0].load) is not None and load.steps == 1)
    router.tick()
    assert router.ready() is None
