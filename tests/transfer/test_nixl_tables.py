"""What connector nixl tells the package of a copy, and what it says of the way that bytes take."""

import pytest

from splitserve.transfer.nixl.path import Way, likely_route, likely_way, open_ways
from splitserve.transfer.nixl.tables import tables
from splitserve.transfer.plan import Span
from splitserve.transfer.posting.pairs import Pairs, Place


def test_tables_name_each_span_of_each_layer_in_both_pools() -> None:
    pairs = Pairs(
        (Span(0, 30, 5), Span(20, 0, 7)), 2, Place(1000, 100, "cpu"), Place(5000, 60, "cuda:3")
    )
    source, target = tables(pairs)
    assert source.tolist() == [[1000, 5, 0], [1020, 7, 0], [1100, 5, 0], [1120, 7, 0]]
    assert target.tolist() == [[5030, 5, 3], [5000, 7, 3], [5090, 5, 3], [5060, 7, 3]]
    assert [list(pairs.of(layer)) for layer in range(2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("all", True), ("^tcp", False), ("^cma", True), ("tcp,cma", True), ("rc,cuda", False)],
)
def test_a_way_that_ucx_may_not_take_is_not_named(
    monkeypatch: pytest.MonkeyPatch, setting: str, expected: bool
) -> None:
    monkeypatch.setenv("UCX_TLS", setting)
    assert ("tcp" in open_ways("cpu")) is expected


@pytest.mark.parametrize(
    ("peer_host", "peer_ways", "expected"),
    [
        ("here", ["shm", "tcp"], "shm"),
        ("there", ["shm", "rc", "tcp"], "rc"),
        ("there", ["shm", "tcp"], "tcp"),
        ("there", ["shm"], None),
        ("", ["tcp"], None),
    ],
)
def test_the_best_way_of_both_sides_is_the_likely_one(
    peer_host: str, peer_ways: list[Way], expected: Way | None
) -> None:
    assert likely_way("here", ["shm", "rc", "tcp"], peer_host, peer_ways) == expected


@pytest.mark.parametrize(
    ("own", "peer", "setting", "way", "why"),
    [
        (["tcp"], ["shm", "tcp"], "tcp", "tcp", "UCX_TLS=tcp forbids it"),
        (["tcp"], ["shm", "tcp"], "all", "tcp", "kernel.yama.ptrace_scope"),
        (["shm", "tcp"], ["tcp"], "all", "tcp", "at the peer"),
        (["shm", "tcp"], ["shm", "tcp"], "all", "shm", None),
        ([], ["shm"], "none", "", "UCX_TLS=none forbids it"),
    ],
    ids=["setting", "kernel", "peer", "taken", "no way"],
)
def test_a_way_that_is_not_taken_has_a_reason(
    monkeypatch: pytest.MonkeyPatch,
    own: list[Way],
    peer: list[Way],
    setting: str,
    way: str,
    why: str | None,
) -> None:
    monkeypatch.setenv("UCX_TLS", setting)
    route = likely_route("here", own, "here", peer)
    assert route.way == way
    if why is None:
        assert "shm" not in route.passed
    else:
        assert why in route.passed["shm"]


def test_rdma_has_the_name_that_it_has_with_other_connectors() -> None:
    assert likely_route("here", ["rc", "tcp"], "there", ["rc", "tcp"]).way == "rdma"
    assert "rdma" in likely_route("here", ["tcp"], "there", ["rc", "tcp"]).passed
