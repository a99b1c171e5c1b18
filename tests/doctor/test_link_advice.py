"""What measured links are warned of."""

import pytest

from splitserve.doctor.findings import Advice, Link
from splitserve.doctor.link_advice import link_advice

from .made import link, links

GPUS = ("cuda:0", "cuda:1")


def advised(*others: Link) -> list[Advice]:
    memcpy, *_ = links()
    return list(link_advice([memcpy, *others]))


def test_a_sound_host_has_no_warnings() -> None:
    assert list(link_advice(links())) == []


def test_what_is_not_installed_is_no_fault() -> None:
    assert advised(link("nixl", state="missing", why="pip install it")) == []


def test_a_failed_path_is_a_warning_and_wrong_bytes_are_an_error() -> None:
    failed, wrong = advised(
        link("tcp", state="failed", why="refused"), link("shm", state="wrong", why="other bytes")
    )
    assert (failed.level, wrong.level) == ("warning", "error")
    assert "tcp, cpu to cpu: refused" in failed.says
    assert "do not serve" in wrong.cure


def test_tcp_within_a_host_is_said_to_be_slow() -> None:
    (one,) = advised(link("nixl", gb_per_s=0.55, way="tcp"))
    assert one.about == "slow"
    assert "0.55 GB/s" in one.says
    assert "UCX_TLS" in one.cure


@pytest.mark.parametrize(("rate", "warned"), [(1.9, True), (2.1, False)])
def test_one_copy_far_below_memcpys_rate_is_slow(rate: float, warned: bool) -> None:
    assert [one.about for one in advised(link("shm", gb_per_s=rate))] == ["slow"] * warned


def test_a_gpus_path_is_compared_with_the_copy_between_the_same_gpus() -> None:
    copy = link("memcpy", GPUS, gb_per_s=300.0)
    assert advised(copy, link("cuda_ipc", GPUS, gb_per_s=200.0)) == []
    (one,) = advised(copy, link("cuda_ipc", GPUS, gb_per_s=20.0))
    assert "7% of a plain copy" in one.says


def test_tcp_and_the_plain_socket_are_not_held_to_memcpys_rate() -> None:
    assert advised(link("tcp", gb_per_s=0.1), link("socket", gb_per_s=0.1)) == []


def test_a_late_first_transfer_is_warned_of() -> None:
    (one,) = advised(link("nixl", first_ms=5000.0, way="rc"))
    assert one.about == "late"
    assert "5.0 s" in one.says
