"""Requests that go well, and what the reader sees of them."""

import asyncio

import pytest
from router_bench import Answer, Bench, until
from scripted_worker import (
    ScriptedWorker,
    answer_whole,
    chunk_of,
    grant_always,
    prefill_into,
    prompt,
    token_at,
)

from splitserve.errors import BugError, CallerError, ConfigError, PeerError
from splitserve.ids import HandoffId, RequestId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import Submit
from splitserve.protocol.generate import TokenChunk, TokenLogprob
from splitserve.protocol.generator import Generator
from splitserve.protocol.handoff import Prefill, Reserve
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router


def expected(n: int) -> list[int]:
    return [token_at(i) for i in range(n)]


async def prefilling(p: ScriptedWorker, d: ScriptedWorker) -> Prefill:
    """Brings a split request to where prefill computes."""
    reserve = await d.expect(Reserve)
    d.grant(reserve.handoff)
    return await p.expect(Prefill)


async def test_a_split_answer_is_joined_from_both_workers(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=4))
    reserve = await d.expect(Reserve)
    assert (reserve.writer, reserve.request) == ("p0", answer.request)
    assert not p.all(Prefill)
    d.grant(reserve.handoff)
    prefill = await p.expect(Prefill)
    assert (prefill.request, prefill.target.handoff) == (answer.request, reserve.handoff)
    p.tokens(chunk_of("r", 0, cached=16))
    await answer.has(1)
    p.done(RequestId("r"), reserve.handoff)
    d.tokens(chunk_of("r", 1, 2))
    d.tokens(chunk_of("r", 3, finish="length"))
    await answer.ended()
    assert answer.tokens == expected(4)
    assert [c.finish_reason for c in answer.chunks][-1] == "length"
    assert answer.chunks[0].cached_tokens == 16
    await until(lambda: bench.notes.handoffs == [("r", 4096, 0.25, 0.5, 0.125)])
    assert bench.notes.outcomes == [("r", "done")]
    assert [phase for _, phase in bench.notes.phases] == [
        "waiting",
        "granting",
        "prefilling",
        "transferring",
        "decoding",
    ]
    assert bench.notes.fallbacks == []
    assert d.aborted() == []


async def test_a_colocated_answer_comes_from_one_worker(bench: Bench) -> None:
    router, c = await bench.colocated(on_order=answer_whole)
    generator: Generator = router
    chunks = [chunk async for chunk in generator.generate(prompt("r", max_tokens=5))]
    assert [t for chunk in chunks for t in chunk.token_ids] == expected(5)
    assert [placement.reason for placement in bench.notes.placements] == ["colocated"]
    assert c.aborted() == []
    assert router.ledger.empty


async def test_decode_tokens_that_overtake_the_first_wait_for_it(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=3))
    prefill = await prefilling(p, d)
    d.tokens(chunk_of("r", 1))
    d.tokens(chunk_of("r", 2, finish="length"))
    await until(lambda: len(router.ledger.at(d.name)) == 0)
    assert answer.tokens == []
    p.tokens(chunk_of("r", 0, cached=0))
    p.done(RequestId("r"), prefill.target.handoff)
    await answer.ended()
    assert answer.tokens == expected(3)
    assert answer.error is None


async def test_doubled_chunks_are_dropped(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r", max_tokens=3))
    await c.expect(Submit)
    c.tokens(chunk_of("r", 0), chunk_of("r", 0), chunk_of("r", 1))
    c.tokens(chunk_of("r", 0, 2), chunk_of("r", 2, finish="stop"), chunk_of("r", 2, finish="stop"))
    await answer.ended()
    assert answer.tokens == expected(3)


async def test_a_missing_token_is_an_error_and_never_silence(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=4))
    prefill = await prefilling(p, d)
    p.tokens(chunk_of("r", 0))
    d.tokens(chunk_of("r", 2), chunk_of("r", 3, finish="length"))
    p.done(RequestId("r"), prefill.target.handoff)
    await answer.ended()
    assert isinstance(answer.error, PeerError)
    assert "missing" in str(answer.error)
    assert answer.tokens == expected(1)


async def test_an_answer_that_ends_at_prefill_frees_the_grant(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=1))
    prefill = await prefilling(p, d)
    p.tokens(chunk_of("r", 0, finish="length", cached=0))
    p.done(RequestId("r"), prefill.target.handoff)
    await answer.ended()
    assert answer.tokens == expected(1)
    await until(lambda: d.aborted() == ["r"])
    assert p.aborted() == []


async def test_a_slow_reader_gets_what_has_gathered_as_one_chunk(bench: Bench) -> None:
    router, c = await bench.colocated()
    stream = router.generate(prompt("r", max_tokens=6, logprobs=0))
    first = asyncio.ensure_future(anext(stream))
    await c.expect(Submit)

    def with_logprob(i: int, finish: str | None = None) -> TokenChunk:
        entry = (TokenLogprob(token_at(i), -float(i), 1),)
        return TokenChunk(RequestId("r"), i, (token_at(i),), finish, None, entry)  # type: ignore[arg-type]

    c.tokens(with_logprob(0))
    assert (await first).token_ids == (token_at(0),)
    for i in range(1, 6):
        c.tokens(with_logprob(i, "length" if i == 5 else None))
    await until(lambda: router.open_requests == 0)
    rest = [chunk async for chunk in stream]
    assert len(rest) == 1
    assert rest[0].token_ids == tuple(expected(6)[1:])
    assert rest[0].logprobs == tuple(TokenLogprob(token_at(i), -float(i), 1) for i in range(1, 6))
    assert rest[0].finish_reason == "length"


async def test_what_can_never_fit_is_the_callers_error_at_once(bench: Bench) -> None:
    router, c = await bench.colocated(free=10, max_model_len=1000)
    answer = await Answer(router, prompt("r", tokens=160)).ended()
    assert isinstance(answer.error, CallerError)
    assert answer.error.code == "context_length_exceeded"
    assert not c.all(Submit)
    fits = Answer(router, prompt("s", tokens=159))
    await c.expect(Submit)
    await fits.leave()


async def test_a_request_id_is_used_once_at_a_time(bench: Bench) -> None:
    router, c = await bench.colocated()
    first = Answer(router, prompt("r"))
    await c.expect(Submit)
    with pytest.raises(BugError, match="in use"):
        await anext(router.generate(prompt("r")))
    c.tokens(chunk_of("r", 0, 8, finish="length"))
    await first.ended()
    assert first.error is None


async def test_a_worker_that_breaks_the_protocol_costs_that_request_and_no_other(
    bench: Bench,
) -> None:
    router, c = await bench.colocated()
    answer, other = Answer(router, prompt("r")), Answer(router, prompt("s"))
    await c.expect(Submit, 1)
    c.done(RequestId("r"), HandoffId("r#0"))
    await answer.ended()
    assert isinstance(answer.error, PeerError)
    await until(lambda: c.aborted() == ["r"])
    c.tokens(chunk_of("unknown", 0), chunk_of("s", 0, 8, finish="length"))
    await other.ended()
    assert other.tokens == expected(8)


async def test_closing_the_router_ends_readers_and_tells_workers(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r"))
    await c.expect(Submit)
    await router.close()
    await answer.ended()
    assert isinstance(answer.error, PeerError)
    await until(lambda: c.aborted() == ["r"])


async def test_a_storm_of_requests_leaves_the_ledger_empty(bench: Bench) -> None:
    d0 = await bench.worker("d0", "decode", linked=("p0",), on_order=grant_always)
    d1 = await bench.worker("d1", "decode", linked=("p0",), on_order=grant_always)
    going_on = {"d0": prefill_into(d0), "d1": prefill_into(d1)}

    def on_order(worker: ScriptedWorker, message: Message) -> None:
        if isinstance(message, Prefill):
            going_on[message.target.worker](worker, message)

    p = await bench.worker("p0", "prefill", on_order=on_order)
    router = await bench.router(max_queued=5000)
    answers = [Answer(router, prompt(f"r{n}", max_tokens=1 + n % 4)) for n in range(2000)]
    for n, answer in enumerate(answers):
        if n % 7 == 3:
            await answer.leave()
    for n, answer in enumerate(answers):
        if n % 7 != 3:
            await answer.ended()
            assert answer.error is None
            assert answer.tokens == expected(1 + n % 4)
    await until(lambda: router.ledger.empty)
    assert router.open_requests == router.waiting_requests == 0
    assert len(p.all(Prefill)) > 100
    assert {placement.decode for placement in bench.notes.placements} == {"d0", "d1"}


def test_an_unknown_policy_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="policy"):
        Router(RouterConfig(policy="nearest"), [], gateway="g")
