"""Turns of a conversation go back to the workers that had the ones before."""

from collections.abc import Sequence

import msgspec
from router_bench import Answer, Bench, until
from scripted_worker import ScriptedWorker, chunk_of, prompt, token_at

from splitserve.protocol.codec import Message
from splitserve.protocol.control import Submit
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import Prefill, Reserve
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.policy.chunks import CHUNK

TOKENS = 2 * CHUNK
ANSWER = CHUNK
FIRST = tuple(range(1, TOKENS + 1))
SECOND = (*FIRST, *(token_at(i) for i in range(ANSWER)), *range(1, 41))
"""The first turn, its answer and 40 new tokens."""

OTHER = tuple(range(500, 500 + TOKENS))


def turn(name: str, tokens: Sequence[int], *, salt: str = "") -> GenerateRequest:
    request = prompt(name, max_tokens=ANSWER)
    return msgspec.structs.replace(request, token_ids=tuple(tokens), cache_salt=salt)


def answer_in_full(worker: ScriptedWorker, message: Message) -> None:
    """A colocated worker that answers in one frame and does not say what it had cached."""
    if isinstance(message, Submit):
        worker.tokens(chunk_of(message.request.request_id, 0, ANSWER, finish="length"))
        worker.report()


def grant(worker: ScriptedWorker, message: Message) -> None:
    if isinstance(message, Reserve):
        worker.grant(message.handoff)
        worker.report()


class Prefills:
    """What a prefill worker does for any of ``decodes``; these go on at once."""

    def __init__(self, decodes: Sequence[ScriptedWorker]) -> None:
        self._decodes = {decode.name: decode for decode in decodes}

    def __call__(self, worker: ScriptedWorker, message: Message) -> None:
        if isinstance(message, Prefill):
            name, target = message.request.request_id, message.target
            worker.tokens(chunk_of(name, 0))
            worker.done(name, target.handoff)
            worker.report()
            rest = chunk_of(name, 1, ANSWER - 1, finish="length")
            self._decodes[target.worker].tokens(rest)


async def pair(bench: Bench) -> tuple[Router, list[ScriptedWorker]]:
    workers = [
        await bench.worker(name, "colocated", on_order=answer_in_full) for name in ("c0", "c1")
    ]
    return await bench.router(), workers


async def ask(router: Router, request: GenerateRequest) -> None:
    answer = await Answer(router, request).ended()
    assert answer.error is None
    await until(lambda: router.ledger.empty)


async def test_the_next_turn_goes_to_the_worker_that_answered_the_last_one(bench: Bench) -> None:
    router, _ = await pair(bench)
    await ask(router, turn("a", FIRST))
    await ask(router, turn("b", SECOND))
    await ask(router, turn("c", OTHER))
    first, second, other = bench.notes.placements
    assert second.decode == first.decode != other.decode
    # The answer's last token was never computed: its chunk is not expected.
    assert second.decode_cached_tokens == TOKENS
    assert second.reason == f"colocated; prefix of {TOKENS} tokens"
    assert other.reason == "colocated"


async def test_a_turn_after_an_answer_finds_its_computed_chunks_too(bench: Bench) -> None:
    router, _ = await pair(bench)
    await ask(router, turn("a", FIRST[: TOKENS - 8]))
    answered = [token_at(i) for i in range(ANSWER)]
    await ask(router, turn("b", [*FIRST[: TOKENS - 8], *answered, *range(1, 41)]))
    first, second = bench.notes.placements
    assert (second.decode, second.decode_cached_tokens) == (first.decode, TOKENS)


async def test_an_answer_that_was_not_heard_to_its_end_counts_as_far_as_it_went(
    bench: Bench,
) -> None:
    router, c = await bench.colocated()
    start = FIRST[: TOKENS - 8]
    first = Answer(router, turn("a", start))
    await c.expect(Submit)
    c.tokens(chunk_of("a", 0, ANSWER - 1))
    await first.has(ANSWER - 1)
    await first.leave()
    answered = [token_at(i) for i in range(ANSWER - 1)]
    second = Answer(router, turn("b", [*start, *answered, *range(1, 41)]))
    await c.expect(Submit, 1)
    assert bench.notes.placements[1].decode_cached_tokens == TOKENS
    await second.leave()


async def test_the_token_that_is_always_computed_is_not_expected_to_be_cached(
    bench: Bench,
) -> None:
    router, _ = await pair(bench)
    for name in ("a", "b"):
        await ask(router, turn(name, FIRST))
    assert [placed.decode_cached_tokens for placed in bench.notes.placements] == [0, CHUNK]


async def test_another_salt_is_another_conversation(bench: Bench) -> None:
    router, _ = await pair(bench)
    await ask(router, turn("a", FIRST, salt="mine"))
    await ask(router, turn("b", SECOND, salt="yours"))
    first, second = bench.notes.placements
    assert second.decode != first.decode
    assert second.decode_cached_tokens == 0


async def test_an_edited_history_counts_only_as_far_as_it_is_the_same(bench: Bench) -> None:
    router, _ = await pair(bench)
    await ask(router, turn("a", FIRST))
    edited = [*SECOND]
    edited[CHUNK] = 1999
    await ask(router, turn("b", edited))
    first, second = bench.notes.placements
    assert (second.decode, second.decode_cached_tokens) == (first.decode, CHUNK)


async def test_nothing_is_expected_of_a_worker_in_a_new_life(bench: Bench) -> None:
    router, workers = await pair(bench)
    await ask(router, turn("a", FIRST))
    (first,) = bench.notes.placements
    holder = next(worker for worker in workers if worker.name == first.decode)
    holder.incarnation = "life-2"
    holder.hang_up()
    await until(lambda: router.warnings() != [])
    await until(lambda: router.warnings() == [])
    await ask(router, turn("b", SECOND))
    second = bench.notes.placements[-1]
    assert second.decode != first.decode
    assert second.reason == "colocated"


async def test_a_split_conversation_goes_back_to_both_of_its_workers(bench: Bench) -> None:
    links = ("p0", "p1")
    decodes = [
        await bench.worker(name, "decode", linked=links, on_order=grant) for name in ("d0", "d1")
    ]
    for name in links:
        await bench.worker(name, "prefill", on_order=Prefills(decodes))
    router = await bench.router()
    await ask(router, turn("a", FIRST))
    await ask(router, turn("b", SECOND))
    first, second = bench.notes.placements
    assert (second.decode, second.prefill) == (first.decode, first.prefill)
    assert (second.decode_cached_tokens, second.prefill_cached_tokens) == (TOKENS, TOKENS)


async def test_what_a_worker_says_it_had_is_observed(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, turn("a", FIRST))
    await c.expect(Submit)
    c.tokens(chunk_of("a", 0, ANSWER, finish="length", cached=48))
    await answer.ended()
    (seen,) = bench.notes.observations
    assert (seen.cached_tokens, seen.computed_tokens) == (48, TOKENS - 48)
