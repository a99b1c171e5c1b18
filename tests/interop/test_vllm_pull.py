"""Prefill and decode by NIXL pull: what one vLLM instance writes, moved and split."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from client import Stream, body, complete
from vllm_fleet import Fleet, VllmCluster, gateway
from vllm_prompts import prompt

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NEW = 12
BLOCK = 128
"""vLLM's block size on CPUs, in tokens."""

KV_TOKEN_BYTES = 2 * 30 * 3 * 64 * 4
"""Of the demo model in float32: K and V, layers, heads, numbers a head."""

LENGTHS = [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 300]


@pytest.fixture(scope="module")
def split(pulling: Fleet) -> Iterator[VllmCluster]:
    with pulling.gateway("p0", "d0") as cluster:
        yield cluster


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("length", LENGTHS)
def test_greedy_tokens_are_those_of_one_instance(
    pulling: Fleet, split: VllmCluster, length: int, streamed: bool
) -> None:
    ids, decode = prompt(length, seed=f"pull {streamed}"), pulling["d0"]
    before, handoffs = decode.total("vllm:nixl_bytes_transferred_sum"), split.handoffs
    tokens = answered(split, ids, streamed)
    assert tokens == pulling["p0"].complete(ids, NEW, ignore_eos=True)
    assert len(tokens) == NEW
    assert split.handoffs == handoffs + 1
    decode.nudge()
    moved = decode.total("vllm:nixl_bytes_transferred_sum") - before
    assert moved >= length * KV_TOKEN_BYTES


def answered(split: VllmCluster, ids: list[int], streamed: bool) -> list[int]:
    if not streamed:
        return complete(split, ids, NEW, ignore_eos=True)
    stream = Stream(split, ids, NEW, ignore_eos=True)
    stream.read_all()
    assert stream.error is None
    assert stream.finish_reason == "length"
    return stream.tokens


def test_the_same_prompt_again_comes_from_both_caches(pulling: Fleet, split: VllmCluster) -> None:
    ids = prompt(300, seed="again")
    first = complete(split, ids, NEW, ignore_eos=True)
    assert complete(split, ids, NEW, ignore_eos=True) == first
    longer = ids + first + prompt(40, seed="more")
    expected = pulling["p0"].complete(longer, NEW, ignore_eos=True)
    assert complete(split, longer, NEW, ignore_eos=True) == expected


@pytest.mark.parametrize("seed", [1, 2])
def test_seeded_draws_are_those_of_one_instance(
    pulling: Fleet, split: VllmCluster, seed: int
) -> None:
    settings: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "seed": seed, "ignore_eos": True}
    ids, differing = prompt(150, seed=seed), split.happened("first_token_differs")
    ours = complete(split, ids, NEW, **settings)
    assert ours == pulling["p0"].complete(ids, NEW, **settings)
    assert ours != complete(split, ids, NEW, **{**settings, "seed": seed + 100})
    assert split.happened("first_token_differs") == differing


def test_logprobs_are_those_of_one_instance(pulling: Fleet, split: VllmCluster) -> None:
    ids = prompt(140, seed="logprobs")
    answer = httpx.post(
        f"{split.url}/v1/completions", json=body(split, ids, 6, logprobs=3), timeout=60
    ).json()
    own = pulling["p0"].ask("/v1/completions", prompt=ids, max_tokens=6, temperature=0, logprobs=3)
    ours, theirs = (each["choices"][0]["logprobs"] for each in (answer, own))
    assert ours["tokens"] == theirs["tokens"]
    # What else is in a batch changes the last bits of a sum.
    assert ours["token_logprobs"] == pytest.approx(theirs["token_logprobs"], abs=0.01)


def test_what_counts_the_answers_tokens_is_exact_too(pulling: Fleet, split: VllmCluster) -> None:
    """Such a first token waits for decode: a replay could not go on after prefill's."""
    ids, waited = prompt(130, seed="penalty"), split.happened("first_token_waits")
    settings: dict[str, Any] = {"frequency_penalty": 1.5, "ignore_eos": True}
    expected = pulling["p0"].complete(ids, NEW, **settings)
    assert complete(split, ids, NEW, **settings) == expected
    assert split.happened("first_token_waits") == waited + 1


async def test_streams_at_once(pulling: Fleet, split: VllmCluster) -> None:
    prompts = [prompt(40 + 37 * i, seed="at once") for i in range(6)]
    async with httpx.AsyncClient(timeout=100) as client:
        answers = await asyncio.gather(
            *(
                client.post(
                    f"{split.url}/v1/completions", json=body(split, ids, NEW, ignore_eos=True)
                )
                for ids in prompts
            )
        )
    for ids, answer in zip(prompts, answers, strict=True):
        expected = await asyncio.to_thread(pulling["p0"].complete, ids, NEW, ignore_eos=True)
        assert answer.json()["choices"][0]["token_ids"] == expected


def test_the_first_token_is_there_before_decode_has_begun(
    pulling: Fleet, split: VllmCluster
) -> None:
    ids, decode = prompt(200, seed="first"), pulling["d0"]
    decode.freeze()
    try:
        stream = Stream(split, ids, NEW, ignore_eos=True)
        stream.read(1)
        assert len(stream.tokens) == 1
    finally:
        decode.thaw()
    stream.read_all()
    assert stream.tokens == pulling["p0"].complete(ids, NEW, ignore_eos=True)


def test_no_step_down_the_ladder_was_needed(pulling: Fleet) -> None:
    with pulling.gateway("p0", "d0") as cluster:
        before, fell_back = cluster.happened("first_token_at_once"), cluster.fallbacks
        for i in range(3):
            complete(cluster, prompt(60, seed=f"ladder {i}"), 4, ignore_eos=True)
        assert cluster.happened("first_token_at_once") == before + 3
        assert cluster.fallbacks == fell_back


def test_no_fact_is_needed_to_attach_to_instances_that_pull(pulling: Fleet) -> None:
    bare = {
        name: f"vllm+{pulling[name].url}?name={name}&role={pulling[name].role}"
        "&connector=NixlConnector&kv_role=kv_both"
        for name in ("p0", "d0")
    }
    ids = prompt(150, seed="bare")
    with gateway(pulling.model, bare) as cluster:
        handoffs = cluster.handoffs
        tokens = complete(cluster, ids, NEW, ignore_eos=True)
        assert cluster.handoffs == handoffs + 1
    assert tokens == pulling["p0"].complete(ids, NEW, ignore_eos=True)
