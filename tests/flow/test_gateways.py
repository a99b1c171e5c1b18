"""Two gateway processes on one port, over the same workers."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from client import body, complete
from cluster import FAKE, Cluster, Process, running, wait_until
from tiny_model import VOCAB_SIZE

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.frontend.access import append_key, new_key
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW

CONFIG = FakeConfig(vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH)
SECRET = "secret-that-nobody-may-read-0123456789"
ATTEMPTS = 200
"""The kernel deals connections out by their ports: two hundred to one process is no accident."""


def truth(ids: Sequence[int], count: int) -> list[int]:
    return fake_tokens(ids, count, config=CONFIG)


def prompt(seed: int, length: int) -> list[int]:
    return [300 + (seed * 31 + i * 7) % 1000 for i in range(length)]


@dataclass
class Two:
    """``cluster.gateway`` is the second of the ``gateways``."""

    cluster: Cluster
    gateways: tuple[Process, Process]

    def connect(self, gateway: Process) -> http.client.HTTPConnection:
        """A connection that ``gateway`` has accepted."""
        for _ in range(ATTEMPTS):
            connection = http.client.HTTPConnection("127.0.0.1", gateway.facts["port"], timeout=30)
            connection.request("GET", "/health")
            connection.getresponse().read()
            port = connection.sock.getsockname()[1]
            if port in peers(gateway):
                return connection
            connection.close()
        raise AssertionError(f"{gateway.pid} was given no connection")


def peers(gateway: Process) -> set[int]:
    """Ports of those who are connected to it."""
    found = psutil.Process(gateway.pid).net_connections(kind="tcp")
    return {each.raddr.port for each in found if each.raddr}


class Answer:
    """A streamed answer over one connection, read by a thread of its own."""

    def __init__(
        self, connection: http.client.HTTPConnection, asked: dict[str, Any], name: str
    ) -> None:
        self.tokens: list[int] = []
        self.ids: set[str] = set()
        self.whole = False
        self._connection = connection
        self._news = threading.Condition()
        self._ended = False
        payload = json.dumps({**asked, "stream": True})
        connection.request("POST", "/v1/completions", payload, {"x-request-id": name})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def read(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.tokens) >= count or self._ended, 30)

    def read_all(self) -> None:
        self._thread.join(30)
        assert self._ended
        self._connection.close()

    def _run(self) -> None:
        try:
            for line in self._connection.getresponse():
                self._take(line.strip())
        except (OSError, http.client.HTTPException):
            pass  # what came until then is looked at
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _take(self, line: bytes) -> None:
        if line == b"data: [DONE]":
            self.whole = True
        elif line.startswith(b"data: "):
            event = json.loads(line[6:])
            with self._news:
                self.ids.add(event["id"])
                for choice in event["choices"]:
                    self.tokens += choice["token_ids"] or []
                self._news.notify_all()


@pytest.fixture
def two(model: str) -> Iterator[Two]:
    flags = (*FAKE, "--fake-step-ms", "5")
    roles = [("prefill", "p0"), ("decode", "d0")]
    with running(model, roles, flags, ["--reuse-port"]) as cluster:
        first = cluster.gateway
        assert first is not None
        cluster.gateway_flags = ("--reuse-port", "--port", str(first.facts["port"]))
        cluster.start_gateway(["p0", "d0"])
        assert cluster.gateway is not None
        try:
            yield Two(cluster, (first, cluster.gateway))
        finally:
            first.kill()


def ready(connection: http.client.HTTPConnection) -> bool:
    connection.request("GET", "/ready")
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


def fallbacks(connection: http.client.HTTPConnection) -> float:
    """How often that gateway had to try again elsewhere or otherwise."""
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    lines = [line for line in text.splitlines() if line.startswith("splitserve_fallback_total")]
    return sum(float(line.split()[-1]) for line in lines)


def test_both_serve_and_one_id_through_both_is_two_requests(two: Two) -> None:
    connections = [two.connect(gateway) for gateway in two.gateways]
    for connection in connections:
        wait_until(lambda c=connection: ready(c), 20, lambda: "a gateway is not ready")
    answers = []
    for number, connection in enumerate(connections):
        answers.append(Answer(connection, body(two.cluster, prompt(number, 40), 300), "same"))
        answers[-1].read(1)
    assert not answers[0].whole
    for number, answer in enumerate(answers):
        answer.read_all()
        assert answer.tokens == truth(prompt(number, 40), 300)
        assert answer.whole
        assert answer.ids == {"cmpl-same"}
    for gateway in two.gateways:
        assert fallbacks(two.connect(gateway)) == 0
    two.cluster.assert_settles()


def test_killing_one_gateway_disturbs_the_other_not_at_all(two: Two) -> None:
    first, second = two.gateways
    doomed = Answer(two.connect(first), body(two.cluster, prompt(1, 40), 1500), "same")
    spared = Answer(two.connect(second), body(two.cluster, prompt(2, 40), 200), "same")
    doomed.read(5)
    spared.read(5)
    first.kill()
    doomed.read_all()
    assert not doomed.whole
    spared.read_all()
    assert spared.tokens == truth(prompt(2, 40), 200)
    assert spared.whole
    for seed in range(5):
        assert complete(two.cluster, prompt(seed, 30), 5) == truth(prompt(seed, 30), 5)
    two.cluster.assert_settles()


@pytest.fixture(scope="module")
def one(model: str) -> Iterator[Cluster]:
    """For tests that leave it as it was."""
    with running(model, [("colocated", "c0")], FAKE) as cluster:
        yield cluster


def test_without_the_flag_a_port_is_not_shared(
    one: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert one.gateway is not None
    first = one.gateway
    flags = ("--reuse-port", "--port", str(first.facts["port"]))
    monkeypatch.setattr(one, "gateway_flags", flags)
    with pytest.raises(AssertionError, match=r"cannot listen on 127\.0\.0\.1 port"):
        one.start_gateway(["c0"])
    assert one.gateway is first


def test_what_comes_on_a_workers_socket_from_elsewhere_harms_nobody(one: Cluster) -> None:
    """Whoever has this user's rights can reach it; garbage must not end the worker."""
    path = one.address("c0").removeprefix("unix:")
    for garbage in (b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x02\x01\x80"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.settimeout(20)
            stranger.connect(path)
            stranger.sendall(garbage)
            assert stranger.recv(100) == b""
    assert complete(one, prompt(1, 20), 5) == truth(prompt(1, 20), 5)
    assert one.workers["c0"].alive
    one.assert_settles()


def test_a_key_is_in_no_command_line_and_in_no_log(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPLITSERVE_API_KEY", SECRET)
    made, line = new_key("alice")
    keys = tmp_path / "keys"
    append_key(keys, line)
    flags = ("--api-key-file", str(keys), "--log-level", "debug")
    with running(model, [("colocated", "c0")], FAKE, flags) as cluster:
        asked = body(cluster, prompt(1, 20), 5)
        for key, status in ((None, 401), ("wrong", 401), (SECRET, 200), (made, 200)):
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            answer = httpx.post(
                f"{cluster.url}/v1/completions", json=asked, headers=headers, timeout=30
            )
            assert answer.status_code == status
        assert cluster.gateway is not None
        processes = (*cluster.workers.values(), cluster.gateway)
        for process in processes:
            shown = " ".join(psutil.Process(process.pid).cmdline())
            logged = process.log.read_text()
            for secret in (SECRET, made):
                assert secret not in shown
                assert secret not in logged
        assert cluster.gateway.log.read_text() != ""
        cluster.assert_settles()
