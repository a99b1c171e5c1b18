"""kill -9 of whole instances under requests. The last of the tests: others need the instances."""

from collections.abc import Iterator

import pytest
from client import Stream, complete
from cluster import wait_until
from vllm_fleet import Fleet, VllmCluster
from vllm_prompts import prompt

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

NEW = 12


@pytest.fixture
def split(pulling: Fleet) -> Iterator[VllmCluster]:
    pulling.start("p0", "d0")
    with pulling.gateway("p0", "d0") as cluster:
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
        answers = [complete(cluster, ids, NEW, ignore_eos=True) for ids in prompts]
        assert cluster.total("splitserve_fallback_total") == 0
    for ids, answer in zip(prompts, answers, strict=True):
        assert answer == pulling["p0"].complete(ids, NEW, ignore_eos=True)
    pulling["p1"].stop()


def test_a_prefill_instance_that_is_killed_mid_prompt_and_its_next_life(
    pulling: Fleet, split: VllmCluster
) -> None:
    ids, before = prompt(1500, seed="prefill dies"), split.total("splitserve_admission_total")
    stream = Stream(split, ids, NEW, ignore_eos=True)
    wait_until(lambda: split.total("splitserve_admission_total") > before, 10, lambda: "not let in")
    pulling["p0"].kill()
    stream.read_all(60)
    assert stream.error is None
    assert stream.tokens == pulling["d0"].complete(ids, NEW, ignore_eos=True)
    assert split.total("splitserve_fallback_total") > 0

    pulling.start("p0")  # the same ports and another engine id
    split.wait_linked()
    after = prompt(200, seed="next life")
    tokens = complete(split, after, NEW, ignore_eos=True)
    assert tokens == pulling["p0"].complete(after, NEW, ignore_eos=True)


def test_a_decode_instance_that_is_killed_mid_answer(pulling: Fleet, split: VllmCluster) -> None:
    """Prompt and what the client has are computed anew by prefill, and the answer goes on."""
    ids = prompt(150, seed="decode dies")
    stream = Stream(split, ids, 40, ignore_eos=True)
    stream.read(8)
    pulling["d0"].kill()
    stream.read_all(60)
    assert stream.error is None
    assert stream.tokens == pulling["p0"].complete(ids, 40, ignore_eos=True)
