"""Split requests over two fake vLLM instances, through the unchanged router."""

import asyncio
from typing import Any

import msgspec
import pytest
from fake_vllm import Behavior, Call, FakeVllm, token_after
from router_bench import Answer, until
from vllm_bench import PARAMS, bench, expected, leg_of, prompt, well

from splitserve.errors import CallerError
from splitserve.protocol.generate import GenerateRequest


def sampled(request: GenerateRequest, **changes: Any) -> GenerateRequest:
    sampling = msgspec.structs.replace(request.sampling, **changes)
    return msgspec.structs.replace(request, sampling=sampling)


def legs(fake: FakeVllm) -> list[str | None]:
    return [leg_of(call) for call in fake.calls]


async def test_the_first_token_leaves_before_decode_has_begun() -> None:
    pause = asyncio.Event()
    p, d = FakeVllm(behave=well), FakeVllm(behave=lambda call: Behavior(pause=pause))
    async with bench(prefill=p, decode=d) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await answer.has(1)
        assert answer.tokens == [token_after(20)]
        pause.set()
        await answer.ended()
        assert answer.tokens == expected(answer.request)
        assert legs(p) == ["prefill"]
        [call] = d.calls
        assert call.params == {"leg": "decode", "from": p.url, **PARAMS}
        assert call.prompt == p.calls[0].prompt
        assert call.headers["X-Request-Id"] == p.calls[0].headers["X-Request-Id"] == "r#0"
        await until(lambda: len(made.notes.handoffs) == 1)
        assert made.words == ["first_token_at_once"]
        assert made.notes.fallbacks == []
        assert made.exchange.empty


async def test_prefill_is_done_when_decode_has_drawn_a_token() -> None:
    pause = asyncio.Event()
    p, d = FakeVllm(behave=well), FakeVllm(behave=lambda call: Behavior(pause=pause))
    async with bench(prefill=p, decode=d) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await d.call()
        await answer.has(1)
        assert made.notes.handoffs == []
        pause.set()
        await answer.ended()
        [(_, nbytes, queue_s, prefill_s, exposed_s)] = made.notes.handoffs
        assert (nbytes, queue_s) == (0, 0.0)
        assert prefill_s > 0.0
        assert exposed_s > 0.0


@pytest.mark.parametrize("change", [{"presence_penalty": 0.5}, {"frequency_penalty": 0.5}])
async def test_where_a_replay_would_not_be_exact_decode_draws_the_first_token(
    change: dict[str, float],
) -> None:
    p = FakeVllm(behave=lambda call: Behavior(params=PARAMS, first=77))
    d = FakeVllm()
    async with bench(prefill=p, decode=d) as made:
        answer = await Answer(made.router, sampled(prompt("r", max_tokens=4), **change)).ended()
        assert answer.tokens == expected(answer.request)
        assert made.words == ["first_token_waits"]
        assert len(d.calls) == 1


async def test_decode_goes_on_after_the_token_that_the_client_has() -> None:
    p = FakeVllm(behave=lambda call: Behavior(params=PARAMS, first=77))
    d = FakeVllm()
    async with bench(prefill=p, decode=d) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == [77, *expected(answer.request)[1:]]
        assert legs(d) == ["decode", None]
        assert d.calls[1].prompt[20:] == [77]
        assert d.calls[1].sampling["max_tokens"] == 3
        await d.see(lambda: d.calls[0].ended)
        assert made.words == ["first_token_at_once", "first_token_differs"]
        assert made.notes.fallbacks == []


@pytest.mark.parametrize("max_tokens", [1, 4], ids=["asked_for_one", "stopped"])
async def test_an_answer_of_one_token_needs_no_decode_and_frees_prefill(max_tokens: int) -> None:
    p = FakeVllm(behave=lambda call: Behavior(params=PARAMS, finish="stop"))
    d = FakeVllm()
    async with bench(prefill=p, decode=d) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=max_tokens)).ended()
        assert answer.tokens == [token_after(20)]
        assert answer.chunks[-1].finish_reason == "stop"
        await until(lambda: "released" in made.words)
        assert legs(d) == ["release"]
        assert len(d.calls[0].prompt) == 1
        assert made.router.ledger.empty


async def test_prefill_without_usable_params_leads_to_a_replay() -> None:
    p, d = FakeVllm(), FakeVllm()
    async with bench(prefill=p, decode=d) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == expected(answer.request)
        assert legs(d) == [None]
        assert d.calls[0].prompt[20:] == [token_after(20)]
        assert "params_unusable" in made.words
        assert made.notes.fallbacks == [("replay", "prefill_transfer_failed")]


async def test_prefill_that_fails_is_recomputed_at_decode() -> None:
    p = FakeVllm(behave=lambda call: Behavior(status=500))
    d = FakeVllm()
    async with bench(prefill=p, decode=d) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == expected(answer.request)
        assert legs(d) == [None]
        assert made.notes.fallbacks == [("recompute", "prefill_engine")]
        assert made.exchange.empty


def fails_on_kv(call: Call) -> Behavior:
    return Behavior(status=500) if leg_of(call) == "decode" else Behavior()


async def test_decode_that_cannot_load_the_kv_computes_it_again() -> None:
    p, d = FakeVllm(behave=well), FakeVllm(behave=fails_on_kv)
    async with bench(prefill=p, decode=d) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == expected(answer.request)
        assert legs(d) == ["decode", None]
        assert made.notes.fallbacks == [("replay", "decode_transfer_failed")]


def refuses_decode(call: Call) -> Behavior:
    return Behavior(status=400, error="too long") if leg_of(call) == "decode" else Behavior()


async def test_blocks_that_decode_refuses_to_read_are_let_go() -> None:
    p, d = FakeVllm(behave=well), FakeVllm(behave=refuses_decode)
    async with bench(prefill=p, decode=d) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert isinstance(answer.error, CallerError)
        await until(lambda: "released" in made.words)
        assert legs(d) == ["decode", "release"]


def hangs_on_kv(call: Call) -> Behavior:
    return Behavior(pause=asyncio.Event() if leg_of(call) == "decode" else None)


async def test_kv_that_never_comes_is_waited_for_no_longer_than_said() -> None:
    p, d = FakeVllm(behave=well), FakeVllm(behave=hangs_on_kv)
    async with bench(prefill=p, decode=d, kv_wait_s=0.05) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == expected(answer.request)
        await d.see(lambda: d.calls[0].gone)
        assert "kv_late" in made.words


async def test_concurrent_legs_do_not_wait_for_each_other() -> None:
    hold = asyncio.Event()
    p = FakeVllm(behave=lambda call: Behavior(hold=hold))
    d = FakeVllm()
    async with bench(prefill=p, decode=d, concurrent=True) as made:
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == expected(answer.request)
        assert made.words == ["first_token_waits"]
        hold.set()


async def test_concurrent_legs_take_prefills_token_where_it_is_first() -> None:
    pause = asyncio.Event()
    p, d = FakeVllm(), FakeVllm(behave=lambda call: Behavior(pause=pause))
    async with bench(prefill=p, decode=d, concurrent=True) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await answer.has(1)
        pause.set()
        await answer.ended()
        assert answer.tokens == expected(answer.request)
        assert made.words == ["first_token_at_once"]


async def test_a_client_that_leaves_during_prefill_ends_prefill() -> None:
    p = FakeVllm(behave=lambda call: Behavior(hold=asyncio.Event()))
    d = FakeVllm()
    async with bench(prefill=p, decode=d) as made:
        answer = Answer(made.router, prompt("r"))
        await p.call()
        await answer.leave()
        await p.see(lambda: p.calls[0].gone)
        assert d.calls == []
        assert made.router.ledger.empty
        assert made.exchange.empty


async def test_prefill_runs_on_where_an_aborted_decode_may_wait_for_its_kv() -> None:
    """vLLM gives such blocks back when they were written, and not before."""
    hold = asyncio.Event()
    p = FakeVllm(behave=lambda call: Behavior(hold=hold, params=PARAMS))
    d = FakeVllm(behave=lambda call: Behavior(pause=asyncio.Event()))
    async with bench(prefill=p, decode=d, concurrent=True) as made:
        answer = Answer(made.router, prompt("r"))
        await p.call()
        await d.call()
        await answer.leave()
        await d.see(lambda: d.calls[0].gone)
        assert made.router.ledger.empty
        hold.set()
        await p.see(lambda: p.calls[0].ended)
        assert not p.calls[0].gone
        assert (len(p.calls), len(d.calls)) == (1, 1)


async def test_a_client_that_leaves_before_decode_has_taken_the_request_in_waits_for_that() -> None:
    """Or nobody would tell prefill to let its blocks go."""
    hold = asyncio.Event()
    p = FakeVllm(behave=well)
    d = FakeVllm(behave=lambda call: Behavior(hold=hold, pause=asyncio.Event()))
    async with bench(prefill=p, decode=d) as made:
        answer = Answer(made.router, prompt("r"))
        await d.call()
        await answer.leave()
        assert made.router.ledger.empty
        assert not d.calls[0].gone
        hold.set()
        await d.see(lambda: d.calls[0].gone)


async def test_a_client_that_leaves_during_decode_ends_decode() -> None:
    p = FakeVllm(behave=well)
    d = FakeVllm(behave=lambda call: Behavior(tail=asyncio.Event()))
    async with bench(prefill=p, decode=d) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await answer.has(3)
        await answer.leave()
        await d.see(lambda: d.calls[0].gone)
        assert legs(d) == ["decode"]
        assert made.router.ledger.empty


async def test_decode_that_dies_is_replayed_at_prefill() -> None:
    p = FakeVllm(behave=well)
    d = FakeVllm(behave=lambda call: Behavior(tail=asyncio.Event()))
    async with bench(prefill=p, decode=d) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await answer.has(3)
        await d.stop()
        await answer.ended()
        assert answer.tokens == expected(answer.request)
        assert legs(p) == ["prefill", None]
        assert len(p.calls[1].prompt) == 23


async def test_prefill_that_dies_leaves_decode_to_do_it_all() -> None:
    p = FakeVllm(behave=lambda call: Behavior(hold=asyncio.Event()))
    d = FakeVllm()
    async with bench(prefill=p, decode=d) as made:
        answer = Answer(made.router, prompt("r", max_tokens=4))
        await p.call()
        await p.stop()
        await answer.ended()
        assert answer.tokens == expected(answer.request)
        assert legs(d) == [None]


async def test_a_full_decode_instance_lets_the_request_wait() -> None:
    tail = asyncio.Event()
    p, d = FakeVllm(behave=well), FakeVllm(behave=lambda call: Behavior(tail=tail))
    async with bench(prefill=p, decode=d, max_num_seqs=1) as made:
        first = Answer(made.router, prompt("a", max_tokens=4))
        await first.has(3)
        second = Answer(made.router, prompt("b", max_tokens=4))
        await until(lambda: made.router.waiting_requests == 1)
        assert len(d.calls) == 1
        tail.set()
        for answer in (first, second):
            await answer.ended()
            assert answer.tokens == expected(answer.request)


async def test_a_pair_that_cannot_hand_over_is_not_linked() -> None:
    p = FakeVllm(behave=well, shake=lambda call: Behavior(params=None))
    d = FakeVllm()
    async with bench(prefill=p, decode=d, linked=False) as made:
        await until(lambda: len(p.handshakes) == 1)
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == expected(answer.request)
        assert (p.calls, legs(d)) == ([], [None])
        assert made.router.warnings() == ["decode-0: prefill worker prefill-0 is not linked"]


async def test_a_pair_is_not_linked_when_decode_computed_what_it_could_not_load() -> None:
    p, d = FakeVllm(behave=well), FakeVllm(failed_transfers=2)

    def recomputes(call: Call) -> Behavior:
        d.failed_transfers += 1
        return Behavior()

    d.shake = recomputes
    async with bench(prefill=p, decode=d, linked=False) as made:
        await until(lambda: len(d.handshakes) == 1)
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == expected(answer.request)
        assert (p.calls, legs(d)) == ([], [None])


@pytest.mark.parametrize("concurrent", [False, True], ids=["serial", "concurrent"])
async def test_a_pair_is_linked_by_a_handoff_that_works(concurrent: bool) -> None:
    p, d = FakeVllm(behave=well), FakeVllm()
    async with bench(prefill=p, decode=d, concurrent=concurrent):
        [first], [second] = p.handshakes, d.handshakes
        assert (leg_of(first), leg_of(second)) == ("prefill", "decode")
        assert first.prompt == second.prompt
        assert first.headers["X-Request-Id"] == second.headers["X-Request-Id"]
        assert not second.streams


async def test_instances_that_say_nothing_to_each_other_are_linked_at_once() -> None:
    p, d = FakeVllm(), FakeVllm()
    async with bench(prefill=p, decode=d, spoken=False) as made:
        assert p.handshakes == d.handshakes == []
        answer = await Answer(made.router, prompt("r", max_tokens=4)).ended()
        assert answer.tokens == expected(answer.request)
        assert legs(p) == legs(d) == [None]


async def test_a_handoff_that_fails_is_tried_out_again_before_the_next() -> None:
    fails = [True]
    p = FakeVllm(behave=well)
    d = FakeVllm(behave=lambda call: fails_on_kv(call) if fails else Behavior())
    async with bench(prefill=p, decode=d) as made:
        first = await Answer(made.router, prompt("a", max_tokens=4)).ended()
        assert first.tokens == expected(first.request)
        fails.clear()
        await until(lambda: len(d.handshakes) == 2 and made.router.warnings() == [])
        await Answer(made.router, prompt("b", max_tokens=4)).ended()
        assert legs(d) == ["decode", None, "decode"]
