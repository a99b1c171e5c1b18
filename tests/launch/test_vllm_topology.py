"""Refusals of ``engine = "vllm"`` in a topology file, before anything starts."""

import tomllib
from pathlib import Path

import pytest

from splitserve.errors import ConfigError
from splitserve.launch.programs import check_programs
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup, parse_topology

MODEL = '[model]\nname = "m"\n'
VLLM = '[[workers]]\nengine = "vllm"\n'
WHOLE = MODEL + VLLM
PREFILL = MODEL + VLLM + 'role = "prefill"\n'
DECODE = VLLM + 'role = "decode"\n'
NATIVE = '[[workers]]\nrole = "decode"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PREFILL + NATIVE, "vLLM and native workers have no connector in common"),
        (
            PREFILL + 'kv_connector = "ExampleConnector"\n' + DECODE,
            "need one kv_connector, not ExampleConnector and NixlConnector",
        ),
        (
            PREFILL + '[[workers]]\nengine = "vllm"\n',
            "need one kv_connector, not NixlConnector and",
        ),
        (PREFILL + "block_size = 64\n" + DECODE, "need one block_size, not 64 and vLLM's own"),
        (PREFILL + 'kv_connector = ""\n' + DECODE, 'workers[0].kv_connector: role "prefill" needs'),
        (
            PREFILL + 'kv_connector = "NixlConector"\n' + DECODE,
            "workers[0].kv_connector: kv_connector 'NixlConector' is none of",
        ),
        (
            PREFILL + 'kv_connector = "DecodeBenchConnector"\n' + DECODE,
            "workers[0].kv_connector: kv_connector DecodeBenchConnector cannot split a request",
        ),
        (
            WHOLE + 'kv_load_failure_policy = "retry"\n',
            "workers[0].kv_load_failure_policy must be one of recompute, fail",
        ),
        (WHOLE + 'connector = "shm"\n', "workers[0].connector is how native workers hand KV over"),
        (WHOLE + "command = []\n", "workers[0].command must name a program"),
        (WHOLE + 'command = ""\n', "workers[0].command must name a program"),
        (WHOLE + 'args = ["--port=1"]\n', "workers[0].args must not have what other keys"),
        (WHOLE + 'args = ["--kv_transfer_config"]\n', "workers[0].args must not have what other"),
        (WHOLE + "port = 0\n", "workers[0].port must leave every worker a port below 65536"),
        (WHOLE + "count = 2\nport = 65535\n", "workers[0].port must leave every worker a port"),
        (WHOLE + "tensor_parallel_size = 0\n", "tensor_parallel_size must be positive"),
        (WHOLE + "startup_timeout_s = nan\n", "startup_timeout_s must be positive"),
        (WHOLE + "block_size = 0\n", "workers[0].block_size must be positive"),
        (
            WHOLE + 'device = "cuda"\ntensor_parallel_size = 2\ndevices = [0]\n',
            "workers[0].devices must name 2 GPUs for each of 1 workers",
        ),
        (WHOLE + 'url = ["localhost:8000"]\n', "workers[0].url[0] must be of the form http://host"),
        (WHOLE + 'url = ["http://a:1", "http://a:1"]\n', "workers[0].url names an instance twice"),
        (WHOLE + 'url = ["http://a:1"]\ncount = 2\n', "workers[0].count is for instances that are"),
        (WHOLE + 'url = ["http://a:1"]\nargs = ["-x"]\n', "workers[0].args is for instances that"),
        (
            MODEL + '[[workers]]\nurl = ["http://a:1"]\n',
            'workers[0].url is read by engine = "vllm" only',
        ),
        (MODEL + "[[workers]]\nport = 1\n", 'workers[0].port is read by engine = "vllm" only'),
    ],
)
def test_an_error_names_the_key_and_the_cure(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_topology(tomllib.loads(text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_native_and_vllm_instances_may_serve_side_by_side_whole() -> None:
    native, vllm = parse_topology(tomllib.loads(MODEL + "[[workers]]\n" + VLLM)).workers
    assert (native.engine, vllm.engine) == ("native", "vllm")


def test_a_program_that_is_not_there_is_named_with_the_cure(tmp_path: Path) -> None:
    def topology(command: str) -> Topology:
        group = WorkerGroup(engine="vllm", command=command)
        return Topology(model=ModelAsked(name="m"), workers=(WorkerGroup(), group))

    missing = str(tmp_path / "vllm")
    with pytest.raises(ConfigError) as caught:
        check_programs(topology(missing))
    assert str(caught.value).startswith(f"workers[1].command: there is no program '{missing}'; in")
    Path(missing).touch(mode=0o700)
    check_programs(topology(missing))


def test_no_program_is_needed_for_instances_that_run_already() -> None:
    group = WorkerGroup(engine="vllm", command="/nonexistent", url=("http://a:1",))
    check_programs(Topology(model=ModelAsked(name="m"), workers=(group,)))
