"""A single arm behind a proxy that does nothing."""

import os
import signal
from pathlib import Path

import pytest

from lab.run.tiny_study import topology_study
from launch.deployments import gone
from splitserve.clock import monotonic
from splitserve.errors import UnavailableError
from splitserve.lab.arms.opened import opened
from splitserve.lab.arms.proxied import ProxiedArm
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.plan.resolve import read_plan

ROW = """
[[arms]]
name = "through"
family = "proxy"
base = "one"
"""


def proxied(folder: Path) -> ProxiedArm:
    (planned,) = read_plan(topology_study(folder, more=ROW)).of_family("proxy")
    arm = opened(planned, folder / "arm", folder, "salt")
    assert isinstance(arm, ProxiedArm)
    return arm


async def asked(arm: ProxiedArm, url: str) -> RequestRecord:
    asking, labels = Asking(arm.endpoint.model), Labels("A", "1", monotonic())
    client = LoadClient(await resolve(url), asking, labels, Limits())
    try:
        return await client.send(LoadRequest("r", (101, 102, 103), 4), 0.0)
    finally:
        client.close()


async def test_it_answers_as_its_base_does_from_another_address(tmp_path: Path) -> None:
    arm = proxied(tmp_path)
    with pytest.raises(UnavailableError, match="not running"):
        _ = arm.endpoint
    await arm.start()
    try:
        behind = arm._inner.endpoint
        assert arm.endpoint.url != behind.url
        through, straight = await asked(arm, arm.endpoint.url), await asked(arm, behind.url)
        assert (through.outcome, straight.outcome) == (Outcome.OK, Outcome.OK)
        assert through.digest == straight.digest
        assert (await arm.describe()).config["proxy.name"] == "pass-through"
        assert await arm.metrics()
        assert await arm.alive() is None
        pid, members = arm._proxy.pid, arm._inner.members
    finally:
        await arm.stop()
    assert gone([pid, *members], within_s=5)


async def test_a_proxy_that_ended_is_noticed(tmp_path: Path) -> None:
    arm = proxied(tmp_path)
    await arm.start()
    try:
        os.kill(arm._proxy.pid, signal.SIGKILL)
        await arm._proxy.wait()
        wrong = await arm.alive()
        assert wrong is not None
        assert "its proxy ended" in wrong
    finally:
        await arm.stop()
