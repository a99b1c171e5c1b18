"""A client that leaves, in each state of a handoff: neither instance keeps anything of it."""

from collections.abc import Iterator

import pytest
from client import Stream
from cluster import wait_until
from vllm_fleet import Fleet, VllmCluster, settle
from vllm_prompts import prompt

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def split(pulling: Fleet) -> Iterator[VllmCluster]:
    with pulling.gateway("p0", "d0") as cluster:
        yield cluster


@pytest.fixture
def emptied(pulling: Fleet, split: VllmCluster) -> Iterator[VllmCluster]:
    """Checks at the end that both instances are as empty as before, sooner than NIXL's lease would
    have made them, and that handoffs still work."""
    for name in ("p0", "d0"):
        settle(pulling[name])
    yield split
    for name in ("p0", "d0"):
        settle(pulling[name])
    split.wait_linked()


def admitted(cluster: VllmCluster, ids: list[int], max_tokens: int) -> Stream:
    """A request that the gateway has let in."""
    before = cluster.total("splitserve_admission_total")
    stream = Stream(cluster, ids, max_tokens, ignore_eos=True)
    wait_until(
        lambda: cluster.total("splitserve_admission_total") > before, 10, lambda: "not let in"
    )
    return stream


def test_before_prefill_has_answered(emptied: VllmCluster) -> None:
    stream = admitted(emptied, prompt(1500, seed="leaves early"), 50)
    assert not stream.tokens
    stream.close()
    assert not stream.tokens


def test_when_prefill_has_answered_and_decode_has_not_begun(
    pulling: Fleet, emptied: VllmCluster
) -> None:
    decode = pulling["d0"]
    decode.freeze()
    try:
        stream = Stream(emptied, prompt(300, seed="leaves between"), 50, ignore_eos=True)
        stream.read(1)
        stream.close()
        assert len(stream.tokens) == 1
    finally:
        decode.thaw()


def test_while_decode_answers(emptied: VllmCluster) -> None:
    stream = Stream(emptied, prompt(200, seed="leaves late"), 1500, ignore_eos=True)
    stream.read(5)
    stream.close()
    assert not stream.finished


def test_when_all_was_said(emptied: VllmCluster) -> None:
    stream = Stream(emptied, prompt(200, seed="stays"), 4, ignore_eos=True)
    stream.read_all()
    assert stream.finished


def test_several_at_once(emptied: VllmCluster) -> None:
    streams = [admitted(emptied, prompt(250, seed=f"many {i}"), 400) for i in range(4)]
    streams[0].read(1)
    for stream in streams:
        stream.close()
