"""What of a running deployment is warned of."""

from typing import Any

import pytest

from splitserve.doctor.deployment_advice import deployment_advice
from splitserve.doctor.findings import ClockOffset, Handoffs, RunningLink, RunningWorker

from .made import deployment


def worker(**changes: Any) -> RunningWorker:
    sound = {
        "name": "decode-0",
        "connected": True,
        "breaker": "closed",
        "running": 1.0,
        "waiting": 0.0,
        "since_step_s": 0.0,
        "kv_blocks": {"free": 90.0, "quarantined": 10.0},
    }
    return RunningWorker(**{**sound, **changes})


def test_a_sound_deployment_is_not_complained_of() -> None:
    report = deployment(
        workers=(worker(),),
        handoffs=Handoffs(1000, 1e9, 1.0, {"local: full": 10}),
        clock=ClockOffset(0.9, 0.6),
    )
    assert list(deployment_advice(report)) == []


@pytest.mark.parametrize(
    ("changes", "level", "says"),
    [
        ({"ready": False, "reason": "no worker"}, "error", "does not serve: no worker"),
        ({"ready": None}, "note", "no /ready page"),
        ({"warnings": ("decode-0: draining",)}, "warning", "decode-0: draining"),
        ({"workers": (worker(breaker="open"),)}, "warning", "breaker open"),
        ({"workers": (worker(since_step_s=12.0),)}, "warning", "no step for 12 s"),
        (
            {"workers": (worker(kv_blocks={"free": 10.0, "quarantined": 10.0}),)},
            "warning",
            "50% of its KV blocks in quarantine",
        ),
        (
            {"handoffs": Handoffs(10, 1.0, 1.0, {"local: full": 2})},
            "warning",
            "2 steps down the failure ladder beside 10 handoffs: 2 local: full",
        ),
        (
            {"links": (RunningLink("p0", "d0", "tcp", "tcp", "shm"),)},
            "warning",
            "KV goes by tcp (connector tcp) though shm could be taken: p0 to d0",
        ),
        ({"clock": ClockOffset(-3.0, 0.6)}, "warning", "-3.0 s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_amiss_is_said(changes: dict[str, Any], level: str, says: str) -> None:
    (one,) = deployment_advice(deployment(**changes))
    assert one.level == level
    assert says in one.says
    assert one.cure


def test_slow_links_of_one_kind_are_one_advice() -> None:
    slow = ("tcp", "tcp", "shm")
    links = (
        RunningLink("p0", "d0", *slow),
        RunningLink("p0", "d1", *slow),
        RunningLink("p0", "d2", "shm", "shm"),
        RunningLink("p0", "d3", "nixl", "tcp", "cuda_ipc"),
    )
    ours, ucx = deployment_advice(deployment(links=links))
    assert ours.says.endswith(": p0 to d0, p0 to d1")
    assert "leave out the connector" in ours.cure
    assert "UCX_TLS" in ucx.cure


def test_a_worker_that_is_not_connected_is_told_by_the_gateways_own_warning_only() -> None:
    gone = worker(connected=False, breaker="open", kv_blocks={})
    assert list(deployment_advice(deployment(workers=(gone,)))) == []
