"""ExampleConnector, a shared folder, as the second real connector; ``/v1/completions`` as the
endpoint, since these instances were started without scale-out."""

from collections.abc import Iterator

import pytest
from client import Stream, complete
from vllm_fleet import Fleet, VllmCluster
from vllm_prompts import prompt

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NEW = 8
BLOCK = 128


@pytest.fixture(scope="module")
def split(sharing: Fleet) -> Iterator[VllmCluster]:
    with sharing.gateway("p0", "d0") as cluster:
        yield cluster


# Not 1: vLLM 0.32's ExampleConnector takes such a prompt for a hit of -128 tokens, and dies of it.
@pytest.mark.parametrize("length", [2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 300])
def test_greedy_tokens_are_those_of_one_instance(
    sharing: Fleet, split: VllmCluster, length: int
) -> None:
    ids, handoffs = prompt(length, seed="example"), split.handoffs
    tokens = complete(split, ids, NEW, ignore_eos=True)
    assert tokens == sharing["p0"].complete(ids, NEW, ignore_eos=True)
    assert split.handoffs == handoffs + 1


def test_decode_loads_what_prefill_stored(sharing: Fleet, split: VllmCluster) -> None:
    ids, decode = prompt(400, seed="stored"), sharing["d0"]
    hits = decode.total("vllm:external_prefix_cache_hits_total")
    stream = Stream(split, ids, NEW, ignore_eos=True)
    stream.read_all()
    assert stream.tokens == sharing["p0"].complete(ids, NEW, ignore_eos=True)
    decode.nudge()
    assert decode.total("vllm:external_prefix_cache_hits_total") >= hits + 3 * BLOCK


def test_seeded_draws_are_those_of_one_instance(sharing: Fleet, split: VllmCluster) -> None:
    settings = {"temperature": 0.9, "seed": 7, "ignore_eos": True}
    ids = prompt(150, seed="seeded")
    expected = sharing["p0"].complete(ids, NEW, **settings)
    assert complete(split, ids, NEW, **settings) == expected
