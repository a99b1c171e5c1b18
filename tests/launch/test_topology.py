"""Topology files: what is accepted, and what the errors say."""

import tomllib
from pathlib import Path

import pytest

from splitserve.engine.device import Sizes
from splitserve.errors import ConfigError
from splitserve.launch.topology import (
    FakeCosts,
    GatewayAsked,
    ModelAsked,
    Topology,
    WorkerGroup,
    parse_topology,
    read_topology,
)
from splitserve.tier.config import TierConfig

TOPOLOGIES = Path(__file__).parents[2] / "topologies"

FULL = """
[model]
name = "smollm2"
served_model_name = "small"
dtype = "float32"
max_model_len = 2048
block_size = 32

[gateway]
port = 9000
policy = "round_robin"
request_timeout_s = 30

[[workers]]
role = "prefill"
cores = [0]
tensor_parallel_size = 3
kv_cache_memory_bytes = "512MiB"

[[workers]]
role = "decode"
count = 2
engine = "fake"
tensor_parallel_size = 2
fake = { step_ms = 5, num_blocks = 64, num_kv_heads = 6 }
"""

OK = '[model]\nname = "m"\n'
WORKERS = OK + "[[workers]]\n"


def test_a_full_file_means_what_it_says() -> None:
    topology = parse_topology(tomllib.loads(FULL))
    assert topology.model == ModelAsked(
        name="smollm2",
        served_model_name="small",
        dtype="float32",
        max_model_len=2048,
        block_size=32,
    )
    assert topology.model.served_as == "small"
    assert topology.gateway == GatewayAsked(port=9000, policy="round_robin", request_timeout_s=30.0)
    prefill, decode = topology.workers
    assert prefill == WorkerGroup(
        role="prefill", cores=(0,), tensor_parallel_size=3, kv_cache_memory_bytes=512 << 20
    )
    assert (decode.role, decode.count, decode.engine) == ("decode", 2, "fake")
    assert decode.tensor_parallel_size == 2
    assert decode.fake == FakeCosts(step_ms=5.0, num_blocks=64, num_kv_heads=6)


def test_the_least_file_is_a_model_and_one_group() -> None:
    assert parse_topology(tomllib.loads(WORKERS)) == Topology(
        model=ModelAsked(name="m"), workers=(WorkerGroup(),), gateway=GatewayAsked()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[workers]]\n", "needs the key `model`"),
        (OK, "needs the key `workers`"),
        ("[model]\n[[workers]]\n", "model: needs the key `name`"),
        ('model = "m"\n[[workers]]\n', "model: Expected `object`, got `str`"),
        (OK + "[workers]\ncount = 1\n", "workers: Expected `array`, got `object`"),
        (OK + "workers = []\n", "model.workers: unknown key; known are name"),
        ("workers = []\n" + OK, "workers needs at least one group"),
        ('[model]\nname = " "\n[[workers]]\n', "model.name must not be empty"),
        (WORKERS + "rol = 1\n", "workers[0].rol: unknown key; did you mean 'role'?"),
        (WORKERS + "zzz = 1\n", "workers[0].zzz: unknown key; known are role, count"),
        (WORKERS + "[[workers]]\nmax_seqs = 1\n", "workers[1].max_seqs: unknown key; did you mean"),
        (WORKERS + "fake = { step = 1 }\n", "workers[0].fake.step: unknown key; did you mean"),
        ("[modle]\n" + WORKERS, "modle: unknown key; did you mean 'model'?"),
        (WORKERS + 'role = "prefil"\n', "(got 'prefil'); did you mean 'prefill'?"),
        (WORKERS + 'role = "prefill"\n', 'with role "prefill" needs one with role "decode"'),
        (WORKERS + 'role = "decode"\n', 'with role "decode" needs one with role "prefill"'),
        (WORKERS + "count = 0\n", "workers[0].count must be positive (got 0)"),
        (WORKERS + 'count = "2"\n', "workers[0].count: Expected `int`, got `str`"),
        (WORKERS + "count = true\n", "workers[0].count: Expected `int`, got `bool`"),
        (WORKERS + 'engine = "vlm"\n', "workers[0].engine must be one of native, fake"),
        (WORKERS + 'connector = "memory"\n', "workers[0].connector must be one of auto, shm"),
        (WORKERS + 'device = "cuda:1"\n', "workers[0].device must be one of cpu, cuda"),
        (
            WORKERS + 'connector = "cuda_ipc"\n',
            "workers[0].connector 'cuda_ipc' does not reach memory of device 'cpu'; use 'shm'",
        ),
        (
            WORKERS + 'device = "cuda"\nconnector = "shm"\n',
            "workers[0].connector 'shm' does not reach memory of device 'cuda'; use 'cuda_ipc'",
        ),
        (
            WORKERS + 'device = "cuda"\nengine = "fake"\n',
            "workers[0].device 'cuda': the fake engine has no use for a GPU; use cpu",
        ),
        (
            WORKERS + 'role = "prefill"\n[[workers]]\nrole = "decode"\ndevice = "cuda"\n',
            "need one connector, not cuda_ipc and shm; give all of them the same device",
        ),
        (WORKERS + "devices = [0]\n", 'workers[0].devices names GPUs and needs device = "cuda"'),
        (WORKERS + 'device = "cuda"\ndevices = [-1]\n', "devices must not be negative"),
        (
            WORKERS + 'device = "cuda"\ndevices = [0, 1]\n',
            "workers[0].devices must name one GPU for each of 1 workers (got [0, 1])",
        ),
        (
            WORKERS + "gpu_memory_utilization = 0\n",
            "workers[0].gpu_memory_utilization must be above 0 and at most 1 (got 0.0)",
        ),
        (WORKERS + "gpu_memory_utilization = 1.1\n", "must be above 0 and at most 1 (got 1.1)"),
        (WORKERS + "gpu_memory_utilization = nan\n", "must be above 0 and at most 1 (got nan)"),
        (WORKERS + 'cores = [0, "n 1"]\n', "workers[0].cores[1]: Expected `int`, got `str`"),
        (WORKERS + "cores = [0, 0]\n", "workers[0].cores names a core twice"),
        (
            WORKERS + 'kv_cache_memory_bytes = "1 GB of"\n',
            "workers[0].kv_cache_memory_bytes: '1 GB",
        ),
        (
            WORKERS + "kv_tier_memory_bytes = -1\n",
            "workers[0].kv_tier_memory_bytes must not be negative; 0 is without that level",
        ),
        (
            WORKERS + 'kv_tier_disk_bytes = "1GiB"\n',
            "workers[0].kv_tier_disk_bytes has no folder: add workers[0].kv_tier_disk_path",
        ),
        (
            WORKERS + 'kv_tier_disk_path = "/kv"\n',
            "kv_tier_disk_bytes must be positive beside workers[0].kv_tier_disk_path (got 0)",
        ),
        (
            WORKERS + 'enable_prefix_caching = false\nkv_tier_memory_bytes = "1GiB"\n',
            "workers[0].enable_prefix_caching must be on where there is a KV tier",
        ),
        (
            WORKERS + 'engine = "vllm"\nkv_tier_memory_bytes = "1GiB"\n',
            "workers[0].kv_tier_memory_bytes is read by native workers",
        ),
        (
            WORKERS + "kv_tier_memory_bytes = 7\n[[workers]]\nkv_tier_memory_bytes = 8\n",
            "need one kv_tier_memory_bytes, not 7 and 8; give all groups that have a tier the same",
        ),
        (WORKERS + "kv_cache_memory_bytes = -1\n", "kv_cache_memory_bytes must be positive"),
        (WORKERS + "kv_cache_memory_bytes = true\n", "kv_cache_memory_bytes: True is not a size"),
        (WORKERS + "fake = { step_ms = -1 }\n", "workers[0].fake.step_ms must not be negative"),
        (WORKERS + "fake = { step_ms = nan }\n", "workers[0].fake.step_ms must not be negative"),
        (WORKERS + "tensor_parallel_size = 0\n", "tensor_parallel_size must be positive (got 0)"),
        (
            WORKERS + 'device = "cuda"\ntensor_parallel_size = 2\n',
            "workers[0].tensor_parallel_size splits native workers on the CPU only; "
            'engine = "vllm" spreads one over GPUs (got 2)',
        ),
        (WORKERS + "fake = { num_kv_heads = 0 }\n", "fake.num_kv_heads must be positive (got 0)"),
        (WORKERS + "max_num_seqs = 0\n", "workers[0].max_num_seqs must be positive"),
        (WORKERS + "[gateway]\nport = 65536\n", "gateway.port must be 0 to 65535 (got 65536)"),
        (WORKERS + '[gateway]\npolicy = "random"\n', "gateway.policy must be one of cost"),
        (WORKERS + "[gateway]\nrequest_timeout_s = nan\n", "request_timeout_s must be positive"),
        (WORKERS + '[gateway]\nhost = ""\n', "gateway.host must not be empty"),
        ('[model]\nname = "m"\ndtype = "fp8"\n[[workers]]\n', "model.dtype must be one of auto"),
        ('[model]\nname = "m"\nblock_size = 0\n[[workers]]\n', "model.block_size must be from 1"),
        ('[model]\nname = "m"\nmax_model_len = 0\n[[workers]]\n', "model.max_model_len must be"),
        ('[model]\nname = "m"\nseed = -1\n[[workers]]\n', "model.seed must not be negative"),
    ],
)
def test_an_error_names_the_key_and_the_cure(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_topology(tomllib.loads(text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_of_a_file_begin_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    for content, message in (
        (None, f"{path}: No such file or directory"),
        (b"[model", f"{path}: not a TOML file"),
        (b"\xff", f"{path}: not a TOML file"),
        (b"[model]\n", f"{path}: model: needs the key"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            read_topology(path)
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.toml")), ids=lambda path: path.name)
def test_the_examples_are_right(path: Path) -> None:
    assert read_topology(path).workers


def test_sizes_and_connector_that_are_not_named_follow_from_the_device() -> None:
    on_cpu, on_gpu = WorkerGroup(), WorkerGroup(device="cuda", max_num_seqs=7)
    assert (on_cpu.sizes, on_cpu.chosen_connector) == (Sizes(64, 512, 1 << 30), "shm")
    assert (on_gpu.sizes, on_gpu.chosen_connector) == (Sizes(7, 8192, None), "cuda_ipc")


def test_workers_that_hand_nothing_over_may_have_unlike_devices() -> None:
    text = WORKERS + '[[workers]]\ndevice = "cuda"\nconnector = "cuda_ipc"\ndevices = [3]\n'
    _, on_gpu = parse_topology(tomllib.loads(text)).workers
    assert (on_gpu.device, on_gpu.devices) == ("cuda", (3,))


def test_a_group_may_have_a_tier_and_another_none() -> None:
    tier = 'kv_tier_memory_bytes = "2MiB"\nkv_tier_disk_path = "/kv"\nkv_tier_disk_bytes = "1GiB"\n'
    text = WORKERS + tier + "[[workers]]\n[[workers]]\n" + tier
    first, without, last = parse_topology(tomllib.loads(text)).workers
    assert first.kv_tier == last.kv_tier == TierConfig(2 << 20, Path("/kv"), 1 << 30)
    assert not without.kv_tier.wanted
