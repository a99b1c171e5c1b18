"""What an operator tells a running worker: verbs, flags and signals."""

import subprocess
import sys
from pathlib import Path

from client import Stream
from cluster import FAKE, Cluster, running, tail, wait_until

SLOW = (*FAKE, "--fake-step-ms", "20")
COLOCATED = (("colocated", "c0"), ("colocated", "c1"))
IDS = [300 + i for i in range(40)]


def splitserve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "splitserve", *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def with_work(cluster: Cluster) -> str:
    """The worker that runs something."""

    def found() -> list[str]:
        return [
            name
            for name in cluster.workers
            if cluster.total("splitserve_requests_running", worker=name)
        ]

    wait_until(lambda: bool(found()), 5, lambda: "no worker runs anything")
    return found()[0]


def test_drain_says_what_is_left_and_the_worker_ends(model: str) -> None:
    with running(model, COLOCATED, SLOW) as cluster:
        stream = Stream(cluster, IDS, 200)
        stream.read(2)
        name = with_work(cluster)
        told = splitserve("drain", cluster.address(name))
        assert (told.returncode, told.stdout) == (0, f"{name} drains: 1 requests left\n")
        stream.read_all()
        assert stream.finish_reason == "length"
        stream.close()
        leaving = cluster.workers[name]
        wait_until(lambda: not leaving.alive, 10, lambda: tail(leaving.log))
        assert leaving.popen.returncode == 0


def test_a_role_is_changed_by_name(model: str) -> None:
    with running(model, COLOCATED, FAKE) as cluster:
        told = splitserve("set-role", cluster.address("c0"), "prefill")
        assert (told.returncode, told.stdout) == (0, "c0 is a prefill worker now\n")
        again = splitserve("set-role", cluster.address("c0"), "decode")
        assert again.returncode == 2
        assert again.stderr.startswith("error: c0 stays prefill: ")
        assert splitserve("set-role", cluster.address("c0"), "nonsense").returncode == 2


def test_nobody_at_the_address_is_said_in_one_line(tmp_path: Path) -> None:
    told = splitserve("drain", f"unix:{tmp_path}/c7.sock")
    assert told.returncode == 3
    assert len(told.stderr.splitlines()) == 1


def test_a_second_sigterm_does_not_wait_for_what_runs(model: str) -> None:
    with running(model, COLOCATED, SLOW) as cluster:
        stream = Stream(cluster, IDS, 1000)
        stream.read(2)
        leaving = cluster.workers[with_work(cluster)]
        leaving.popen.terminate()
        wait_until(lambda: "draining: " in tail(leaving.log), 10, lambda: tail(leaving.log))
        assert leaving.alive
        leaving.popen.terminate()
        wait_until(lambda: not leaving.alive, 5, lambda: tail(leaving.log))
        stream.close()


def test_after_the_grace_what_still_runs_goes_on_elsewhere(model: str) -> None:
    with running(model, COLOCATED, (*SLOW, "--drain-grace-s", "0.2")) as cluster:
        stream = Stream(cluster, IDS, 100)
        stream.read(2)
        leaving = cluster.workers[with_work(cluster)]
        leaving.popen.terminate()
        stream.read_all()
        assert stream.finish_reason == "length"
        assert len(stream.tokens) == 100
        stream.close()
        wait_until(lambda: not leaving.alive, 5, lambda: tail(leaving.log))
