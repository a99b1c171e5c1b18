"""A deployment that tells where its requests' time went: what each process is told of that."""

from typing import Any

import pytest

from splitserve.launch.commands.native import gateway_process
from splitserve.launch.commands.vllm import instance_address
from splitserve.launch.group import WorkerGroup
from splitserve.launch.topology import parse_topology

FLAG = "--enable-per-request-metrics"


@pytest.mark.parametrize("asked", [False, True])
def test_the_gateway_is_told_by_its_option(asked: bool) -> None:
    data: dict[str, Any] = {
        "model": {"name": "m"},
        "gateway": {"enable_per_request_metrics": asked},
        "workers": [{}],
    }
    process = gateway_process(parse_topology(data), "python", ["unix:/w"])
    assert (FLAG in process.argv) is asked


@pytest.mark.parametrize("args", [(), (FLAG,)])
def test_the_gateway_knows_which_vllm_tells_times(args: tuple[str, ...]) -> None:
    address = instance_address("v0", WorkerGroup(engine="vllm", args=args), "http://h:1")
    assert ("per_request_metrics=1" in address) is bool(args)
