"""One prefill and one decode process behind a gateway process, over real sockets."""

import asyncio
from collections.abc import Iterator, Sequence

import httpx
import pytest
from client import Stream, body, complete
from cluster import FAKE, SLOW_PAIR, Cluster, running, wait_until
from tiny_model import VOCAB_SIZE

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW

CONFIG = FakeConfig(vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH)


def truth(prompt: Sequence[int], count: int) -> list[int]:
    return fake_tokens(prompt, count, config=CONFIG)


def prompt(seed: int, length: int) -> list[int]:
    return [300 + (seed * 31 + i * 7) % 1000 for i in range(length)]


@pytest.fixture(scope="module")
def shared(model: str) -> Iterator[Cluster]:
    """A pair for tests that leave it as it was. Each has prompts of its own: what one asked, the
    workers still know in the next."""
    with running(model, *SLOW_PAIR) as cluster:
        yield cluster


@pytest.mark.parametrize("length", [1, 4, 31, 32, 33, 100])
def test_answers_are_right(shared: Cluster, length: int) -> None:
    ids = prompt(length, length)
    assert complete(shared, ids, 8) == truth(ids, 8)
    assert complete(shared, ids, 8) == truth(ids, 8)  # from the prefix cache
    shared.assert_settles()


def test_kv_really_moves(shared: Cluster) -> None:
    names = ("handoff_bytes_total", "handoff_exposed_seconds_count", "fallback_total")
    before = [shared.total(f"splitserve_{name}") for name in names]
    complete(shared, prompt(201, 64), 4)
    after = [shared.total(f"splitserve_{name}") for name in names]
    moved, exposed, fallbacks = (now - was for was, now in zip(before, after, strict=True))
    assert moved > 0
    assert exposed == 1
    assert fallbacks == 0


async def test_many_streams_at_once(shared: Cluster) -> None:
    prompts = [prompt(210 + i, 5 + i * 3) for i in range(24)]
    async with httpx.AsyncClient(timeout=50) as client:
        answers = await asyncio.gather(
            *(
                client.post(f"{shared.url}/v1/completions", json=body(shared, ids, 10))
                for ids in prompts
            )
        )
    for ids, answer in zip(prompts, answers, strict=True):
        assert answer.json()["choices"][0]["token_ids"] == truth(ids, 10)
    await asyncio.to_thread(shared.assert_settles)


def test_answer_of_one_token_needs_no_decode_step(shared: Cluster) -> None:
    ids = prompt(203, 20)
    assert complete(shared, ids, 1) == truth(ids, 1)
    shared.assert_settles()


def cancelled(cluster: Cluster) -> float:
    return cluster.total("splitserve_generations_total", outcome="cancelled")


def test_client_gone_while_the_prompt_is_computed(shared: Cluster) -> None:
    before, asked = cancelled(shared), body(shared, prompt(204, 400), 50)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{shared.url}/v1/completions", json=asked, timeout=0.2)
    wait_until(lambda: cancelled(shared) > before, 5, lambda: "nothing was cancelled")
    shared.assert_settles()
    assert cancelled(shared) == before + 1


def test_client_gone_while_streaming(shared: Cluster) -> None:
    before = cancelled(shared)
    stream = Stream(shared, prompt(205, 40), 2000)
    stream.read(5)
    stream.close()
    wait_until(lambda: cancelled(shared) > before, 5, lambda: "nothing was cancelled")
    shared.assert_settles()
    assert cancelled(shared) == before + 1


def test_prefill_worker_killed_mid_prompt(split: Cluster) -> None:
    ids = prompt(4, 600)
    stream = Stream(split, ids, 10)
    wait_until(lambda: split.kv_blocks()["d0"]["granted"] > 0, 5, lambda: "no grant was seen")
    split.workers["p0"].kill()
    stream.read_all()
    assert stream.tokens == truth(ids, 10)
    assert stream.finish_reason == "length"
    assert split.total("splitserve_fallback_total") >= 1
    stream.close()
    split.assert_settles()


def test_without_any_prefill_worker_decode_does_all(split: Cluster) -> None:
    split.workers["p0"].kill()
    ids = prompt(5, 50)
    wait_until(split.ready, 5, lambda: split.ready_answer().text)
    assert complete(split, ids, 6) == truth(ids, 6)
    split.assert_settles()


def test_a_restarted_prefill_worker_is_used_again(split: Cluster) -> None:
    split.workers["p0"].kill()
    split.start_worker("prefill", "p0")
    moved = split.total("splitserve_handoff_bytes_total")

    def used() -> bool:
        complete(split, prompt(int(split.total("splitserve_generations_total")), 40), 3)
        return split.total("splitserve_handoff_bytes_total") > moved

    wait_until(used, 10, lambda: "the prefill worker stays unused")
    split.assert_settles()


def test_the_only_decode_worker_killed_mid_answer(split: Cluster) -> None:
    """What is left is the prefill worker, and every worker can do everything: it goes on."""
    ids = prompt(6, 40)
    stream = Stream(split, ids, 60)
    stream.read(10)
    split.workers["d0"].kill()
    stream.read_all()
    assert stream.tokens == truth(ids, 60)
    assert stream.finish_reason == "length"
    stream.close()
    split.assert_settles()


def test_every_worker_killed_mid_answer_is_one_honest_error(split: Cluster) -> None:
    ids = prompt(7, 40)
    stream = Stream(split, ids, 500)
    stream.read(5)
    split.workers["p0"].kill()
    split.workers["d0"].kill()
    stream.read_all()
    assert stream.error is not None
    assert not stream.finished
    assert stream.finish_reason is None
    assert stream.tokens == truth(ids, len(stream.tokens))
    stream.close()
    assert split.ready_answer().status_code == 503
    split.start_worker("decode", "d0")
    wait_until(split.ready, 10, lambda: split.ready_answer().text)
    assert complete(split, ids, 5) == truth(ids, 5)


def test_a_frozen_prefill_worker_keeps_nobody_waiting(split: Cluster) -> None:
    ids = prompt(8, 600)
    stream = Stream(split, ids, 10)
    wait_until(lambda: split.kv_blocks()["d0"]["granted"] > 0, 5, lambda: "no grant was seen")
    split.workers["p0"].freeze()
    stream.read_all()
    assert stream.tokens == truth(ids, 10)
    stream.close()
    # The writer may still be alive: its blocks wait for it.
    wait_until(
        lambda: split.kv_blocks()["d0"]["quarantined"] > 0, 5, lambda: str(split.kv_blocks())
    )
    split.workers["p0"].thaw()
    split.assert_settles()


def test_gateway_killed_leaves_no_block_behind(split: Cluster) -> None:
    stream = Stream(split, prompt(9, 40), 2000)
    stream.read(5)
    assert split.gateway is not None
    split.gateway.kill()
    stream.close()
    split.start_gateway(["p0", "d0"])
    split.assert_settles()
    ids = prompt(10, 40)
    assert complete(split, ids, 5) == truth(ids, 5)


def test_two_prefill_and_two_decode_workers(model: str) -> None:
    roles = [("prefill", "p0"), ("prefill", "p1"), ("decode", "d0"), ("decode", "d1")]
    with running(model, roles, FAKE) as cluster:
        for i in range(12):
            ids = prompt(i, 30 + i)
            assert complete(cluster, ids, 5) == truth(ids, 5)
        cluster.assert_settles()
        used = {w for w, states in cluster.kv_blocks().items() if states["cached"] > 0}
        assert used == {"p0", "p1", "d0", "d1"}


def test_two_colocated_workers(model: str) -> None:
    with running(model, [("colocated", "c0"), ("colocated", "c1")], FAKE) as cluster:
        for i in range(6):
            ids = prompt(i, 30 + i)
            assert complete(cluster, ids, 5) == truth(ids, 5)
        cluster.assert_settles()
        assert cluster.total("splitserve_handoff_bytes_total") == 0
