"""Whether the way that KV takes is the fastest there is, and what to do where it is not."""

import os

import pytest

from splitserve.protocol.whereabouts import UNKNOWN, Whereabouts
from splitserve.transfer.base import Route
from splitserve.transfer.hosts import whereabouts
from splitserve.transfer.ways import cure, judge

HERE = Whereabouts("a", "a 1000")
WITH_RDMA = Whereabouts("b", "b 1000", rdma=True)


@pytest.mark.parametrize(
    ("connector", "way", "device", "peer", "faster"),
    [
        ("shm", "shm", "cpu", HERE, ""),
        ("cuda_ipc", "cuda_ipc", "cuda:0", HERE, ""),
        ("memory", "memory", "cpu", HERE, ""),
        ("tcp", "tcp", "cpu", HERE, "shm"),
        ("mooncake", "tcp", "cpu", HERE, "shm"),
        ("nixl", "tcp", "cpu", HERE, "shm"),
        ("nixl", "tcp", "cuda:1", HERE, "cuda_ipc"),
        ("nixl", "", "cpu", HERE, ""),
        ("tcp", "tcp", "cpu", Whereabouts("a", "a 0"), ""),
        ("tcp", "tcp", "cpu", Whereabouts("b", "a 1000"), ""),
        ("tcp", "tcp", "cpu", WITH_RDMA, ""),
        ("tcp", "tcp", "cpu", UNKNOWN, ""),
    ],
)
def test_a_faster_way_is_named_only_where_it_could_be_taken(
    connector: str, way: str, device: str, peer: Whereabouts, faster: str
) -> None:
    judged = judge(connector, Route(way), device, HERE, peer)
    assert (judged.way, judged.faster) == (way, faster)


def test_rdma_between_hosts_is_faster_than_tcp_where_both_have_it() -> None:
    own = Whereabouts("a", "a 1000", rdma=True)
    judged = judge("tcp", Route("tcp"), "cpu", own, WITH_RDMA)
    assert judged.faster == "rdma"
    assert judge("nixl", Route("rdma"), "cpu", own, WITH_RDMA).faster == ""
    assert "connector nixl" in cure("tcp", "rdma")
    assert "UCX_TLS" in cure("nixl", "rdma")


def test_what_stands_in_the_way_goes_before_what_the_connector_says() -> None:
    route = Route("tcp", {"cuda_ipc": "UCX_TLS=tcp forbids it"})
    near = judge("nixl", route, "cuda:0", HERE, HERE)
    far = judge("nixl", route, "cuda:0", HERE, Whereabouts("b", "b 1000"))
    assert near.passed[0].why == "UCX_TLS=tcp forbids it"
    assert far.passed[0].why == "the peer is on another host"
    assert "UCX" in cure("nixl", "cuda_ipc")


def test_the_line_says_who_chose_and_why_not_faster() -> None:
    own = judge("shm", Route("shm"), "cpu", HERE, HERE).line("cpu")
    assert own == "connector shm, way shm (the automatic choice)"
    forced = judge("tcp", Route("tcp"), "cpu", HERE, HERE).line("cpu")
    assert forced == (
        "connector tcp, way tcp (asked for; the automatic choice is shm); "
        "not by shm: connector tcp does not take it; not by rdma: no RDMA port is up here"
    )
    assert "way not known" in judge("nixl", Route(""), "cpu", HERE, HERE).line("cpu")


def test_processes_of_one_user_and_host_reach_each_other() -> None:
    assert whereabouts() == whereabouts()
    assert whereabouts().reach.endswith(f" {os.geteuid()}")
