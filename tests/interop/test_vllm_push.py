"""NIXL push: decode registers its blocks and prefill writes into them; both legs at once."""

from collections.abc import Iterator

import pytest
from client import Stream, complete
from cluster import wait_until
from vllm_fleet import Fleet, VllmCluster, gateway, settle
from vllm_prompts import prompt

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NEW = 8
BLOCK = 128


@pytest.fixture(scope="module")
def split(pushing: Fleet) -> Iterator[VllmCluster]:
    addresses = {name: pushing[name].address() for name in ("p0", "d0")}
    with gateway(pushing.model, addresses) as cluster:
        yield cluster
    # No look at what decode holds: vLLM never gives blocks back that a dead prefill instance was to
    # write into (vllm#46283).


@pytest.mark.parametrize("length", [1, BLOCK, BLOCK + 1, 300])
def test_greedy_tokens_are_those_of_one_instance(
    pushing: Fleet, split: VllmCluster, length: int
) -> None:
    ids, handoffs, before = prompt(length, seed="push"), split.handoffs, moved(pushing)
    tokens = complete(split, ids, NEW, ignore_eos=True)
    assert tokens == pushing["d0"].complete(ids, NEW, ignore_eos=True)
    assert split.handoffs == handoffs + 1
    assert moved(pushing) > before


def test_a_stream_says_the_same(pushing: Fleet, split: VllmCluster) -> None:
    ids = prompt(200, seed="push streamed")
    stream = Stream(split, ids, NEW, ignore_eos=True)
    stream.read_all()
    assert stream.error is None
    assert stream.tokens == pushing["d0"].complete(ids, NEW, ignore_eos=True)


def test_a_client_that_leaves_while_decode_answers(pushing: Fleet, split: VllmCluster) -> None:
    stream = Stream(split, prompt(200, seed="push leaves"), 1500, ignore_eos=True)
    stream.read(4)
    stream.close()
    for name in ("p0", "d0"):
        settle(pushing[name])


@pytest.mark.parametrize("length", [40, 1400])
def test_a_client_that_leaves_before_there_is_a_token(
    pushing: Fleet, split: VllmCluster, length: int
) -> None:
    """Decode may have asked for its blocks to be written: they come back when they are."""
    before = split.total("splitserve_admission_total")
    stream = Stream(split, prompt(length, seed="push leaves early"), 50, ignore_eos=True)
    wait_until(lambda: split.total("splitserve_admission_total") > before, 10, lambda: "not let in")
    stream.close()
    for name in ("p0", "d0"):
        settle(pushing[name])


def test_a_prefill_instance_that_is_killed_mid_prompt(pushing: Fleet, split: VllmCluster) -> None:
    """Decode waits for blocks that nobody writes; the answer is computed all the same."""
    ids, before = prompt(1200, seed="push killed"), split.total("splitserve_admission_total")
    stream = Stream(split, ids, NEW, ignore_eos=True)
    wait_until(lambda: split.total("splitserve_admission_total") > before, 10, lambda: "not let in")
    fell_back = split.fallbacks
    pushing["p0"].kill()
    stream.read_all(60)
    assert stream.error is None
    assert stream.tokens == pushing["d0"].complete(ids, NEW, ignore_eos=True)
    assert split.fallbacks > fell_back


def moved(pushing: Fleet) -> float:
    """Bytes, whichever of the two counts them."""
    total = 0.0
    for name in ("p0", "d0"):
        pushing[name].nudge()
        total += pushing[name].total("vllm:nixl_bytes_transferred_sum")
    return total
