"""The demo model in fp32: 1P1D writes what one worker and what transformers write."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import transformers
from client import Stream, body, complete
from cluster import Cluster, running, wait_until

from reference_model import demo_model_folder, greedy_choices, reference_model

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

NEW = 12
FP32 = ("--dtype", "float32", "--kv-cache-memory-bytes", "300MiB")
LENGTHS = [1, 2, 15, 16, 17, 33, 100, 511, 512, 513, 1000, 2000]


@pytest.fixture(scope="module")
def folder() -> Path:
    return demo_model_folder()


@pytest.fixture(scope="module")
def split(folder: Path) -> Iterator[Cluster]:
    flags = (*FP32, "--max-num-batched-tokens", "512")
    with running(str(folder), [("prefill", "p0"), ("decode", "d0")], flags) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(folder: Path) -> Iterator[Cluster]:
    """Another chunk size than the split's: borders must not matter."""
    flags = (*FP32, "--max-num-batched-tokens", "192")
    with running(str(folder), [("colocated", "c0")], flags) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def reference(folder: Path) -> transformers.PreTrainedModel:
    return reference_model(folder)


def prompt(length: int, seed: int = 0) -> list[int]:
    stream = random.Random(f"{seed}-{length}")
    return [stream.randrange(100, 48000) for _ in range(length)]


@pytest.mark.parametrize("length", LENGTHS)
def test_greedy_tokens_are_the_same_three_ways(
    split: Cluster, whole: Cluster, reference: transformers.PreTrainedModel, length: int
) -> None:
    ids = prompt(length)
    first = complete(split, ids, NEW, ignore_eos=True)
    again = complete(split, ids, NEW, ignore_eos=True)  # from prefix caches on both sides
    assert first == again == complete(whole, ids, NEW, ignore_eos=True)
    assert first == greedy_choices(reference, ids, first)
    split.assert_settles()


def test_a_longer_prompt_with_a_cached_start(
    split: Cluster, reference: transformers.PreTrainedModel
) -> None:
    start = prompt(300, seed=7)
    complete(split, start, NEW, ignore_eos=True)
    for more in (1, 16, 40):
        ids = start + prompt(more, seed=8)
        answer = complete(split, ids, NEW, ignore_eos=True)
        assert answer == greedy_choices(reference, ids, answer)
    split.assert_settles()


async def test_streams_at_once(split: Cluster, reference: transformers.PreTrainedModel) -> None:
    prompts = [prompt(20 + 37 * i, seed=i) for i in range(8)]
    async with httpx.AsyncClient(timeout=200) as client:
        answers = await asyncio.gather(
            *(
                client.post(
                    f"{split.url}/v1/completions", json=body(split, ids, NEW, ignore_eos=True)
                )
                for ids in prompts
            )
        )
    for ids, answer in zip(prompts, answers, strict=True):
        tokens = answer.json()["choices"][0]["token_ids"]
        assert tokens == greedy_choices(reference, ids, tokens)
    await asyncio.to_thread(split.assert_settles)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_seeded_sampling_is_the_same_split_and_whole(
    split: Cluster, whole: Cluster, seed: int
) -> None:
    settings = {"temperature": 0.9, "top_p": 0.95, "seed": seed, "ignore_eos": True}
    ids = prompt(50, seed=seed)
    ours = complete(split, ids, 24, **settings)
    assert ours == complete(whole, ids, 24, **settings)
    assert ours != complete(split, ids, 24, **{**settings, "seed": seed + 100})


def test_several_choices_and_logprobs_are_the_same_split_and_whole(
    split: Cluster, whole: Cluster
) -> None:
    request = {"temperature": 0.8, "seed": 5, "n": 3, "logprobs": 4}
    answers = []
    for cluster in (split, whole):
        answer = httpx.post(
            f"{cluster.url}/v1/completions",
            json=body(cluster, prompt(40), 8, **request),
            timeout=100,
        ).json()
        answers.append(
            [
                (choice["token_ids"], choice["logprobs"]["token_logprobs"])
                for choice in sorted(answer["choices"], key=lambda c: int(c["index"]))
            ]
        )
    for (ours, scores), (others, expected) in zip(*answers, strict=True):
        assert ours == others
        # What else is in a batch changes the last bits of a sum.
        assert scores == pytest.approx(expected, abs=0.01)
    assert len(answers[0]) == 3
    assert len({tuple(tokens) for tokens, _ in answers[0]}) == 3


def test_made_up_weights_are_served(folder: Path) -> None:
    """A gateway knows only the weights on disk; workers without them must agree all the same."""
    flags = (*FP32, "--load-format", "dummy")
    with running(str(folder), [("prefill", "p0"), ("decode", "d0")], flags) as cluster:
        assert len(complete(cluster, prompt(20), 4, ignore_eos=True)) == 4
        assert cluster.total("splitserve_handoff_bytes_total") > 0


async def test_preemption_changes_no_token(
    folder: Path, reference: transformers.PreTrainedModel
) -> None:
    """Six answers that do not fit at once into the decode worker's pool."""
    flags = ("--dtype", "float32", "--kv-cache-memory-bytes", "20MiB", "--max-model-len", "400")
    prompts = [prompt(60, seed=50 + i) for i in range(6)]
    with running(str(folder), [("prefill", "p0"), ("decode", "d0")], flags) as cluster:
        async with httpx.AsyncClient(timeout=200) as client:
            answers = await asyncio.gather(
                *(
                    client.post(
                        f"{cluster.url}/v1/completions",
                        json=body(cluster, ids, 70, ignore_eos=True),
                    )
                    for ids in prompts
                )
            )
        await asyncio.to_thread(cluster.assert_settles)
        assert await asyncio.to_thread(cluster.total, "splitserve_preemptions_total") > 0
    for ids, answer in zip(prompts, answers, strict=True):
        tokens = answer.json()["choices"][0]["token_ids"]
        assert len(tokens) == 70
        assert tokens == greedy_choices(reference, ids, tokens)


class TestDeaths:
    """kill -9 with the real engine."""

    @pytest.fixture
    def cluster(self, folder: Path) -> Iterator[Cluster]:
        with running(str(folder), [("prefill", "p0"), ("decode", "d0")], FP32) as cluster:
            yield cluster

    def test_prefill_worker_mid_prompt(
        self, cluster: Cluster, reference: transformers.PreTrainedModel
    ) -> None:
        ids = prompt(900, seed=90)
        stream = Stream(cluster, ids, NEW)
        wait_until(lambda: cluster.kv_blocks()["d0"]["granted"] > 0, 10, lambda: "no grant")
        cluster.workers["p0"].kill()
        stream.read_all()
        assert len(stream.tokens) == NEW
        assert stream.tokens == greedy_choices(reference, ids, stream.tokens)
        stream.close()
        cluster.assert_settles()

    def test_decode_worker_mid_answer(
        self, cluster: Cluster, reference: transformers.PreTrainedModel
    ) -> None:
        ids = prompt(50, seed=91)
        stream = Stream(cluster, ids, 40)
        stream.read(8)
        cluster.workers["d0"].kill()
        stream.read_all()
        assert len(stream.tokens) == 40
        assert stream.tokens == greedy_choices(reference, ids, stream.tokens)
        stream.close()
        cluster.assert_settles()

    def test_client_mid_answer(self, cluster: Cluster) -> None:
        stream = Stream(cluster, prompt(50, seed=92), 2000)
        stream.read(5)
        stream.close()
        cluster.assert_settles()
