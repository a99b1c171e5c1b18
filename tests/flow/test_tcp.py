"""Workers behind TCP: the secret lets in whoever has it, and nobody else."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from client import complete
from cluster import FAKE, Cluster, started
from test_gateways import prompt, truth

from splitserve.launch.ports import free_ports

SECRET = "a secret of this deployment, long enough"


class OverTcp(Cluster):
    """A cluster whose workers listen on ports of the loopback."""

    def address(self, name: str) -> str:
        ports = {"p0": self.ports[0], "d0": self.ports[1]}
        return f"tcp:127.0.0.1:{ports[name]}"


@pytest.fixture(scope="module")
def cluster(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = OverTcp(model, tmp_path_factory.mktemp("tcp"), FAKE)
    found.ports = free_ports(2)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPLITSERVE_SECRET", SECRET)
        with started(found, [("prefill", "p0"), ("decode", "d0")]):
            yield found


def test_gateway_and_workers_that_share_the_secret_serve(cluster: Cluster) -> None:
    assert complete(cluster, prompt(1, 40), 20) == truth(prompt(1, 40), 20)
    assert cluster.total("splitserve_handoff_bytes_total") > 0
    cluster.assert_settles()


def test_who_does_not_know_it_is_turned_away_and_harms_nobody(cluster: Cluster) -> None:
    port = int(cluster.address("d0").rpartition(":")[2])
    strangers = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(300)]
    for number, stranger in enumerate(strangers):
        stranger.sendall(b"\x00\x00\x00\x02\x01\x80" * (1 + number % 40))
    assert complete(cluster, prompt(2, 40), 20) == truth(prompt(2, 40), 20)
    for stranger in strangers:
        stranger.close()
    cluster.assert_settles()
    log = cluster.workers["d0"].log.read_text()
    assert log.count("refused a connection from 127.0.0.1") == 1
    assert SECRET not in log


def test_a_port_that_others_reach_does_not_open_without_a_secret(model: str) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "SPLITSERVE_SECRET"}
    command = ["worker", model, "--role", "decode", "--name", "d0", "--listen", "tcp:10.9.8.7:7001"]
    done = subprocess.run(
        [sys.executable, "-m", "splitserve", *command, *FAKE, "--log-level", "error"],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env=plain,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "give all processes one by --secret-file or SPLITSERVE_SECRET" in line
