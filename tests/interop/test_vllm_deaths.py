"""Instances that come late, freeze and die. The last of the tests: others need the instances."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from client import Stream, complete
from cluster import wait_until
from vllm_fleet import Fleet, VllmCluster
from vllm_prompts import prompt

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

NEW = 12


@contextmanager
def split(pulling: Fleet, prefill: str) -> Iterator[VllmCluster]:
    pulling.start(prefill, "d0")
    with pulling.gateway(prefill, "d0") as cluster:
        yield cluster


def test_two_prefill_instances_share_one_decode_instance(
    pulling: Fleet,
) -> None:
    pulling.start("p0", "d0", "p1")
    with pulling.gateway("p0", "p1", "d0") as cluster:
        both = [pulling["p0"], pulling["p1"]]
        before = [each.total("vllm:prompt_tokens_total") for each in both]
        prompts = [prompt(100, seed=f"2P1D {i}") for i in range(6)]

        def shared() -> bool:
            """Links come one by one."""
            complete(cluster, prompt(100, seed=cluster.handoffs), 2)
            now = [each.total("vllm:prompt_tokens_total") for each in both]
            return all(new - old >= 100 for new, old in zip(now, before, strict=True))

        wait_until(shared, 60, lambda: f"one prefill instance gets nothing: {cluster.log[-2000:]}")
        fell_back = cluster.fallbacks
        answers = [complete(cluster, ids, NEW, ignore_eos=True) for ids in prompts]
        assert cluster.fallbacks == fell_back
    for ids, answer in zip(prompts, answers, strict=True):
        assert answer == pulling["p0"].complete(ids, NEW, ignore_eos=True)


def test_an_instance_without_a_tokenizer_serves_chats(pulling: Fleet) -> None:
    """Templates, tokenizer and stop strings are ours: vLLM's ``--tokens-only`` has none of them."""
    pulling.start("p1")
    question = {"role": "user", "content": "What is the capital of France?"}
    with pulling.gateway("p1", linked=False) as cluster:
        asked = {"model": cluster.served, "messages": [question], "max_tokens": NEW}
        asked |= {"temperature": 0, "stop": ["Paris"]}
        answer = httpx.post(f"{cluster.url}/v1/chat/completions", json=asked, timeout=60).json()
    choice = answer["choices"][0]
    assert choice["message"]["content"] == "The capital of France is "
    assert choice["finish_reason"] == "stop"


def test_a_prefill_instance_that_is_killed_mid_prompt_and_its_next_life(pulling: Fleet) -> None:
    prefill = pulling["p1"]
    with split(pulling, "p1") as cluster:
        ids = prompt(1500, seed="prefill dies")
        before = cluster.total("splitserve_admission_total")
        stream = Stream(cluster, ids, NEW, ignore_eos=True)
        wait_until(
            lambda: cluster.total("splitserve_admission_total") > before, 10, lambda: "not let in"
        )
        fell_back = cluster.fallbacks
        prefill.kill()
        stream.read_all(60)
        assert stream.error is None
        assert stream.tokens == pulling["d0"].complete(ids, NEW, ignore_eos=True)
        assert cluster.fallbacks > fell_back

        pulling.start("p1")  # the same ports and another engine id
        cluster.wait_linked()
        after = prompt(200, seed="next life")
        tokens = complete(cluster, after, NEW, ignore_eos=True)
    assert tokens == pulling["d0"].complete(after, NEW, ignore_eos=True)
    prefill.stop()


def test_a_prefill_instance_that_freezes_before_its_kv_was_read(pulling: Fleet) -> None:
    prefill, decode = pulling["p0"], pulling["d0"]
    ids = prompt(400, seed="prefill freezes")
    with split(pulling, "p0") as cluster:
        decode.freeze()
        stream = Stream(cluster, ids, NEW, ignore_eos=True)
        stream.read(1)
        prefill.freeze()
        decode.thaw()
        try:
            stream.read_all(60)
        finally:
            prefill.thaw()
        assert stream.error is None
        cluster.wait_linked()
    assert stream.tokens == decode.complete(ids, NEW, ignore_eos=True)


def test_a_decode_instance_that_is_killed_mid_answer(pulling: Fleet) -> None:
    """Prompt and what the client has are computed anew by prefill, and the answer goes on."""
    ids = prompt(150, seed="decode dies")
    with split(pulling, "p0") as cluster:
        stream = Stream(cluster, ids, 40, ignore_eos=True)
        stream.read(8)
        pulling["d0"].kill()
        stream.read_all(60)
        assert stream.error is None
    assert stream.tokens == pulling["p0"].complete(ids, 40, ignore_eos=True)
