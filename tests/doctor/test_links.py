"""Paths are measured between real processes."""

from multiprocessing.connection import Connection

import msgspec
import pytest

from splitserve.doctor import links
from splitserve.doctor.link_process import Measured
from splitserve.doctor.links import measure, measure_all
from splitserve.doctor.places import MEMCPY, SOCKET, End, Wanted

HOST = End("cpu", "cpu")


def on_host(path: str) -> Wanted:
    return Wanted(path, HOST, HOST)


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_a_connector_is_measured_with_its_latency_and_first_transfer(path: str) -> None:
    link = measure(on_host(path), seconds=0.02)
    assert (link.state, link.why) == ("measured", "")
    assert (link.path, link.source, link.target) == (path, "cpu", "cpu")
    assert link.gb_per_s > 0
    assert link.latency_ms > 0
    assert link.first_ms > 0


@pytest.mark.parametrize("path", [MEMCPY, SOCKET])
def test_what_connectors_are_compared_with_is_measured(path: str) -> None:
    link = measure(on_host(path), seconds=0.02)
    assert link.state == "measured"
    assert link.gb_per_s > 0
    assert (link.latency_ms > 0) == (path == SOCKET)


def test_a_path_that_cannot_be_opened_says_why() -> None:
    link = measure(on_host("nothing"), seconds=0.02)
    assert link.state == "failed"
    assert "unknown connector 'nothing'" in link.why


def give_other_bytes(path: str, end: End, seconds: float, pipe: Connection) -> None:
    """In place of the giving process: sends nothing, and says that it did."""
    pipe.recv_bytes()
    pipe.send_bytes(msgspec.msgpack.encode(Measured(1.0, 0.1, 0.1, "", b"digest of others")))
    pipe.poll(None)


def test_bytes_that_arrive_other_than_they_were_sent_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "give", give_other_bytes)
    link = measure(on_host("shm"), seconds=0.02)
    assert (link.state, link.why) == ("wrong", "other bytes arrived than were sent")


def test_a_path_that_takes_too_long_is_given_up() -> None:
    link = measure(on_host("shm"), seconds=30.0, limit_s=0.0)
    assert (link.state, link.why) == ("failed", "it did not end in time")


def test_each_is_announced_before_it_is_measured() -> None:
    said: list[str] = []
    (link,) = measure_all([on_host(MEMCPY)], 0.01, said.append)
    assert said == ["measuring memcpy, cpu to cpu"]
    assert link.state == "measured"
