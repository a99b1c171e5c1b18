"""KV that is brought from another engine instead of being computed."""

from collections.abc import Sequence

import pytest
from engine_rig import (
    BLOCK,
    ask,
    copy_block,
    drain,
    expected,
    fake_config,
    greedy,
    make_engine,
    tokens_of,
)

from splitserve.engine.api import Fetch
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.errors import CallerError
from splitserve.ids import HandoffId, RequestId, WorkerId

H = HandoffId("h")
P = WorkerId("p")
R = RequestId("r")
FAKE = fake_config()


def prompt(length: int, first: int = 0) -> list[int]:
    return [first, *(number % 90 for number in range(1, length))]


def taught(tokens: Sequence[int], depth: int) -> EngineCore:
    """An engine that has answered ``tokens`` with one token, and has their full blocks cached."""
    engine = make_engine(depth=depth)
    engine.add(ask("taught", tokens, 1))
    drain(engine)
    return engine


def blocks_of(engine: EngineCore, tokens: Sequence[int]) -> tuple[int, ...]:
    """Where ``engine`` has the full blocks of ``tokens``. They stay: a grant builds on them."""
    reservation = engine.reserve(H, ask("granted", tokens, 1), P)
    assert reservation is not None
    assert reservation.skip_blocks == len(reservation.cached_blocks)
    assert reservation.cached_tokens == len(reservation.cached_blocks) * BLOCK
    return reservation.cached_blocks


def bring(source: EngineCore, tokens: Sequence[int], target: EngineCore, fetch: Fetch) -> None:
    found = blocks_of(source, tokens)
    for number, block in enumerate(fetch.blocks, start=fetch.first):
        for layer in range(FAKE.num_layers):
            copy_block(source, found[number], target, block, layer)


def fetched(
    engine: EngineCore, tokens: Sequence[int], limit: int | None = None, name: str = "r"
) -> Fetch:
    fetch = engine.fetch(ask(name, tokens), push=True, tokens=limit)
    assert fetch is not None
    return fetch


def test_what_was_brought_is_not_computed(depth: int) -> None:
    request = ask("r", prompt(30))
    source, target = taught(request.token_ids, depth), make_engine(depth=depth)
    fetch = fetched(target, request.token_ids, 28)
    assert (fetch.first, len(fetch.blocks), len(fetch.digests)) == (0, 7, 7)
    assert target.counts().held == 7
    bring(source, request.token_ids, target, fetch)
    target.adopt(fetch, 7)
    assert target.counts().cached == 7
    target.add(request, push=True)
    (output,) = drain(target)
    assert output.token_id == expected(request, FAKE)[0]
    assert output.cached_tokens == 28
    assert target.stats().computed_tokens == 2
    target.release(R)
    assert target.counts().idle


def test_only_what_is_lacking_is_fetched_and_what_is_there_stays(depth: int) -> None:
    request = ask("r", prompt(30))
    source, target = taught(request.token_ids, depth), taught(prompt(13), depth)
    fetch = fetched(target, request.token_ids, 28)
    assert (fetch.first, len(fetch.blocks)) == (3, 4)
    assert target.counts().held == 7
    target.add(ask("other", prompt(33, 5), 1))
    drain(target)  # takes all the room that there is
    bring(source, request.token_ids, target, fetch)
    target.adopt(fetch, 4)
    target.add(request)
    outputs = drain(target)
    assert outputs[0].cached_tokens == 28
    assert tokens_of(outputs, "r") == expected(request, FAKE)
    assert target.stats().computed_tokens == 13 + 33 + 2


def test_what_came_only_in_part_is_used_in_part(depth: int) -> None:
    request = ask("r", prompt(30))
    source, target = taught(request.token_ids, depth), make_engine(depth=depth)
    fetch = fetched(target, request.token_ids)
    bring(source, request.token_ids, target, fetch)
    target.adopt(fetch, 2)
    assert (target.counts().cached, target.counts().free) == (2, 14)
    target.add(request)
    outputs = drain(target)
    assert outputs[0].cached_tokens == 8
    assert tokens_of(outputs, "r") == expected(request, FAKE)


def test_what_did_not_come_is_computed(depth: int) -> None:
    request = ask("r", prompt(30))
    engine = make_engine(depth=depth)
    engine.drop(fetched(engine, request.token_ids))
    assert engine.counts().free == FAKE.num_blocks
    engine.add(request)
    assert tokens_of(drain(engine), "r") == expected(request, FAKE)
    assert engine.stats().computed_tokens == 30


def test_what_was_computed_here_meanwhile_is_not_kept_twice(depth: int) -> None:
    request = ask("r", prompt(30), 1)
    source, target = taught(request.token_ids, depth), make_engine(depth=depth, num_blocks=32)
    fetch = fetched(target, request.token_ids)
    bring(source, request.token_ids, target, fetch)
    target.add(ask("faster", prompt(30), 1))
    drain(target)
    target.adopt(fetch, len(fetch.blocks))
    assert (target.counts().cached, target.counts().free) == (7, 25)
    target.add(request)
    assert tokens_of(drain(target), "r") == expected(request, FAKE)


@pytest.mark.parametrize(
    ("length", "limit", "blocks"),
    [(30, 27, 6), (30, 28, 7), (30, 99, 7), (8, 8, 1), (9, 8, 2), (9, None, 2)],
)
def test_the_last_token_and_parts_of_blocks_are_never_fetched(
    length: int, limit: int | None, blocks: int
) -> None:
    engine = make_engine()
    fetch = fetched(engine, prompt(length), limit)
    assert len(fetch.blocks) == blocks
    engine.drop(fetch)


@pytest.mark.parametrize(("length", "limit"), [(30, 0), (30, 3), (4, 4), (1, None)])
def test_nothing_is_held_where_no_whole_block_is_wanted(length: int, limit: int | None) -> None:
    engine = make_engine()
    assert engine.fetch(ask("r", prompt(length)), tokens=limit) is None
    assert engine.counts().free == FAKE.num_blocks


def test_nothing_is_fetched_that_is_here(depth: int) -> None:
    engine = taught(prompt(30), depth)
    assert engine.fetch(ask("r", prompt(30))) is None
    assert engine.counts().idle


def test_without_a_prefix_cache_nothing_is_fetched() -> None:
    engine = make_engine(scheduler=SchedulerConfig(8, 16, enable_prefix_caching=False))
    assert engine.fetch(ask("r", prompt(30))) is None
    assert engine.counts().free == FAKE.num_blocks


def test_names_are_equal_where_all_tokens_before_are_and_only_there() -> None:
    engine = make_engine(num_blocks=64)
    edited = prompt(30)
    edited[9] = 91
    whole, other = fetched(engine, prompt(30), name="a"), fetched(engine, edited, name="b")
    same = [one == two for one, two in zip(whole.digests, other.digests, strict=True)]
    assert same == [True] * 2 + [False] * 5
    salted = engine.fetch(ask("c", prompt(30), salt="tenant"))
    assert salted is not None
    assert not set(salted.digests) & set(whole.digests)


def test_an_edited_history_fetches_from_the_edit_on(depth: int) -> None:
    engine = taught(prompt(30), depth)
    edited = prompt(30)
    edited[9] = 91
    assert fetched(engine, edited).first == 2


def test_who_runs_and_who_waits_first_find_their_blocks() -> None:
    engine = make_engine(num_blocks=10)
    engine.add(ask("large", prompt(36, 1), 1))
    assert engine.fetch(ask("r", prompt(9))) is None
    engine.abort(RequestId("large"))
    engine.add(ask("growing", prompt(28, 1), 5))
    for _ in range(2):
        engine.step()
    assert engine.fetch(ask("r", prompt(13))) is None
    fetch = engine.fetch(ask("r", prompt(9)))
    assert fetch is not None
    assert len(drain(engine)) == 4


def test_a_request_that_cannot_run_is_refused_before_anything_is_brought() -> None:
    engine = make_engine()
    engine.add(ask("r", prompt(5)))
    for request in (
        ask("r", prompt(9)),
        ask("long", prompt(65)),
        ask("ids", [1 << 70] * 9),
        ask("none", prompt(9), sampling=greedy(0)),
    ):
        with pytest.raises(CallerError):
            engine.fetch(request, push=True)
    assert engine.counts().free == FAKE.num_blocks


def test_what_is_offered_has_the_names_that_another_engine_fetches(depth: int) -> None:
    source, target = taught(prompt(30), depth), make_engine(depth=depth)
    offered = source.offer(3)
    assert source.counts().exported == 3
    fetch = fetched(target, prompt(30))
    assert tuple(name for name, _ in offered) == fetch.digests[:3]
    found = blocks_of(source, prompt(30))
    assert tuple(block for _, block in offered) == found[:3]
    assert [name for name, _ in source.offer(9)] == list(fetch.digests[3:])
    assert source.offer(9) == []
    source.cancel(H)
    source.writer_gone(P)
    source.unpin([block for _, block in offered])
    assert source.counts().exported == 4
    source.unpin(found[3:])
    assert source.counts().idle


def test_only_prompts_count_as_computed_and_each_time(depth: int) -> None:
    engine = make_engine(depth=depth)
    engine.add(ask("a", prompt(9), 5))
    drain(engine)
    assert engine.stats().computed_tokens == 9
    engine.add(ask("b", prompt(9), 5))
    drain(engine)
    assert engine.stats().computed_tokens == 9 + 1
    few = make_engine(depth=depth, num_blocks=6, scheduler=SchedulerConfig(8, 16, False))
    for name, length, first in (("a", 8, 1), ("b", 7, 2)):
        few.add(ask(name, prompt(length, first), 12))
    drain(few)
    assert few.stats().preemptions > 0
    assert few.stats().computed_tokens > 8 + 7
