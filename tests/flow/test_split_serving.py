"""One prefill and one decode process behind a gateway process, over real sockets."""

import asyncio
from collections.abc import Sequence

import httpx
import pytest
from client import Stream, body, complete
from cluster import FAKE, Cluster, running, wait_until
from tiny_model import VOCAB_SIZE

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW

CONFIG = FakeConfig(vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH)


def truth(prompt: Sequence[int], count: int) -> list[int]:
    return fake_tokens(prompt, count, config=CONFIG)


def prompt(seed: int, length: int) -> list[int]:
    return [300 + (seed * 31 + i * 7) % 1000 for i in range(length)]


@pytest.mark.parametrize("length", [1, 4, 31, 32, 33, 100])
def test_answers_are_right(split: Cluster, length: int) -> None:
    ids = prompt(length, length)
    assert complete(split, ids, 8) == truth(ids, 8)
    assert complete(split, ids, 8) == truth(ids, 8)  # from the prefix cache
    split.assert_settles()


def test_kv_really_moves(split: Cluster) -> None:
    complete(split, prompt(1, 64), 4)
    assert split.total("splitserve_handoff_bytes_total") > 0
    assert split.total("splitserve_handoff_exposed_seconds_count") == 1
    assert split.total("splitserve_fallback_total") == 0


async def test_many_streams_at_once(split: Cluster) -> None:
    prompts = [prompt(i, 5 + i * 3) for i in range(24)]
    async with httpx.AsyncClient(timeout=50) as client:
        answers = await asyncio.gather(
            *(
                client.post(f"{split.url}/v1/completions", json=body(split, ids, 10))
                for ids in prompts
            )
        )
    for ids, answer in zip(prompts, answers, strict=True):
        assert answer.json()["choices"][0]["token_ids"] == truth(ids, 10)
    await asyncio.to_thread(split.assert_settles)


def test_answer_of_one_token_needs_no_decode_step(split: Cluster) -> None:
    ids = prompt(3, 20)
    assert complete(split, ids, 1) == truth(ids, 1)
    split.assert_settles()


def test_client_gone_while_the_prompt_is_computed(split: Cluster) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{split.url}/v1/completions", json=body(split, prompt(1, 400), 50), timeout=0.2)
    split.assert_settles()
    assert split.total("splitserve_generations_total", outcome="cancelled") == 1


def test_client_gone_while_streaming(split: Cluster) -> None:
    stream = Stream(split, prompt(2, 40), 2000)
    stream.read(5)
    stream.close()
    split.assert_settles()
    assert split.total("splitserve_generations_total", outcome="cancelled") == 1


def test_prefill_worker_killed_mid_prompt(split: Cluster) -> None:
    ids = prompt(4, 300)
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
    ids = prompt(8, 300)
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
