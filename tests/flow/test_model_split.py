"""Real models in fp32: 1P1D writes what one worker and what transformers write.

Mostly the demo model; a tiny one where what is shown is no matter of size.
"""

import asyncio
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import pytest
import transformers
from client import Stream, body, complete
from cluster import Cluster, running, wait_until
from tiny_model import VOCAB_SIZE, make_model_folder, make_weights

from reference_model import demo_model_folder, greedy_choices, reference_model

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

NEW = 5
ROLES = [("prefill", "p0"), ("decode", "d0")]
FP32 = ("--dtype", "float32", "--kv-cache-memory-bytes", "300MiB")
CHUNK = 64
OTHER_CHUNK = 24
"""Tokens of one step of a prompt, in the split and in the whole: borders must not matter."""

LENGTHS = [1, 15, 16, 17, CHUNK - 1, CHUNK, CHUNK + 1, 300]
"""Around the ends of a block and of a step, and several of both."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return demo_model_folder()


@pytest.fixture(scope="module")
def split(folder: Path) -> Iterator[Cluster]:
    flags = (*FP32, "--max-num-batched-tokens", str(CHUNK))
    with running(str(folder), ROLES, flags) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(folder: Path) -> Iterator[Cluster]:
    flags = (*FP32, "--max-num-batched-tokens", str(OTHER_CHUNK))
    with running(str(folder), [("colocated", "c0")], flags) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def reference(folder: Path) -> transformers.PreTrainedModel:
    return reference_model(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_model_folder(tmp_path_factory.mktemp("weighed") / "tiny")
    make_weights(folder)
    return folder


def prompt(length: int, seed: int = 0, highest: int = 48000) -> list[int]:
    stream = random.Random(f"{seed}-{length}")
    return [stream.randrange(100, highest) for _ in range(length)]


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
    start = prompt(2 * CHUNK + 5, seed=7)
    complete(split, start, NEW, ignore_eos=True)
    for more in (1, 16, 40):
        ids = start + prompt(more, seed=8)
        answer = complete(split, ids, NEW, ignore_eos=True)
        assert answer == greedy_choices(reference, ids, answer)
    split.assert_settles()


async def test_streams_at_once(split: Cluster, reference: transformers.PreTrainedModel) -> None:
    prompts = [prompt(8 + 11 * i, seed=i) for i in range(8)]
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


@pytest.mark.parametrize("seed", [1, 2])
def test_seeded_sampling_is_the_same_split_and_whole(
    split: Cluster, whole: Cluster, seed: int
) -> None:
    settings = {"temperature": 0.9, "top_p": 0.95, "seed": seed, "ignore_eos": True}
    ids = prompt(50, seed=seed)
    ours = complete(split, ids, 12, **settings)
    assert ours == complete(whole, ids, 12, **settings)
    assert ours != complete(split, ids, 12, **{**settings, "seed": seed + 100})


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


def test_made_up_weights_are_served(tiny: Path) -> None:
    """A gateway knows only the weights on disk; workers without them must agree all the same."""
    flags = ("--dtype", "float32", "--kv-cache-memory-bytes", "8MiB", "--load-format", "dummy")
    with running(str(tiny), ROLES, flags) as cluster:
        ids = prompt(20, highest=VOCAB_SIZE)
        assert len(complete(cluster, ids, 4, ignore_eos=True)) == 4
        assert cluster.total("splitserve_handoff_bytes_total") > 0


async def test_preemption_changes_no_token(tiny: Path) -> None:
    """Six answers that do not fit at once into the decode worker's pool of 40 blocks."""
    flags = ("--dtype", "float32", "--kv-cache-memory-bytes", "320KiB", "--max-model-len", "400")
    prompts = [prompt(60, seed=50 + i, highest=VOCAB_SIZE) for i in range(6)]
    reference = transformers.AutoModelForCausalLM.from_pretrained(tiny, dtype="float32")
    with running(str(tiny), ROLES, flags) as cluster:
        async with httpx.AsyncClient(timeout=200) as client:
            answers = await asyncio.gather(
                *(
                    client.post(
                        f"{cluster.url}/v1/completions",
                        json=body(cluster, ids, 300, ignore_eos=True),
                    )
                    for ids in prompts
                )
            )
        await asyncio.to_thread(cluster.assert_settles)
        assert await asyncio.to_thread(cluster.total, "splitserve_preemptions_total") > 0
    for ids, answer in zip(prompts, answers, strict=True):
        tokens = answer.json()["choices"][0]["token_ids"]
        assert len(tokens) == 300
        assert tokens == greedy_choices(reference, ids, tokens)


class TestDeaths:
    """kill -9 with the real engine."""

    @pytest.fixture
    def cluster(self, split: Cluster) -> Iterator[Cluster]:
        """After the test whoever died is there again, and used."""
        yield split
        for role, name in ROLES:
            if not split.workers[name].alive:
                split.start_worker(role, name)
        seeds = count(1000)

        def pushes() -> bool:
            before = split.total("splitserve_handoff_bytes_total")
            complete(split, prompt(40, seed=next(seeds)), 2)
            return split.total("splitserve_handoff_bytes_total") > before

        wait_until(pushes, 20, lambda: "the pair is not used as one")

    def test_prefill_worker_mid_prompt(
        self, cluster: Cluster, reference: transformers.PreTrainedModel
    ) -> None:
        ids = prompt(450, seed=90)
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

    def test_client_mid_answer(self, split: Cluster) -> None:
        stream = Stream(split, prompt(50, seed=92), 2000)
        stream.read(5)
        stream.close()
        split.assert_settles()
