"""What of a machine is warned of, and how to mend it."""

from typing import Any

import pytest

from splitserve.doctor.findings import Advice
from splitserve.doctor.machine_advice import machine_advice

from .made import machine

MIB = 1 << 20


def advised(**changes: Any) -> list[Advice]:
    return list(machine_advice(machine(**changes)))


def test_a_sound_machine_is_not_complained_of() -> None:
    assert advised() == []


@pytest.mark.parametrize(
    ("changes", "about", "says", "cure"),
    [
        ({"governors": ("performance", "powersave")}, "governor", "powersave", "cpupower"),
        ({"cores": (3,)}, "cores", "one core", "cpuset"),
        ({"swap_bytes": 300 * MIB}, "swap", "300 MiB", "swapoff"),
        ({"shm_bytes": 64 * MIB}, "shm", "64 MiB", "--shm-size"),
        ({"shm_bytes": 0, "shm_free_bytes": 0}, "shm", "no /dev/shm", "--shm-size"),
        ({"shm_free_bytes": MIB}, "shm", "full but for 1 MiB", "ls -l"),
        ({"open_files": 1024}, "files", "1024 files", "ulimit -n"),
        ({"rdma": ("mlx5_0:1",)}, "memlock", "lock 8192 KiB", "memlock=-1"),
        (
            {"ucx_tls": "tcp", "nixl_ways": ("tcp",)},
            "ucx",
            "UCX_TLS 'tcp' NIXL has nothing but TCP",
            "unset UCX_TLS",
        ),
        ({"ucx_tls": "self", "nixl_ways": ()}, "ucx", "no way", "unset UCX_TLS"),
        ({"nixl_ways": ("tcp",)}, "ucx", "may not copy from each other", "ptrace_scope=0"),
        ({"ucx_tls": "shm", "nixl_ways": ("shm",)}, "ucx", "has died", "add tcp"),
        ({"ucx_net_devices": "eth0, eth1"}, "ucx", "' eth1'", "without spaces"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_amiss_is_warned_of_with_its_cure(
    changes: dict[str, Any], about: str, says: str, cure: str
) -> None:
    (one,) = advised(**changes)
    assert (one.level, one.about) == ("warning", about)
    assert says in one.says
    assert cure in one.cure


def test_a_busy_machine_is_noted_since_its_rates_are_no_measure() -> None:
    (one,) = advised(cpus=4, load=6.25)
    assert (one.level, one.about) == ("note", "load")
    assert "load 6.2 on 4 cores" in one.says
    assert advised(cpus=0, load=6.25) == []


def test_settings_of_ucx_mean_nothing_where_nothing_reads_them() -> None:
    without = {"nixl": None, "vllm": None}
    assert advised(ucx_tls="tcp", nixl_ways=("tcp",), versions=without) == []


def test_no_limit_is_enough() -> None:
    assert advised(open_files=None, locked_bytes=None, rdma=("mlx5_0:1",)) == []


def test_several_rdma_ports_without_a_choice_are_a_note() -> None:
    (one,) = advised(rdma=("mlx5_0:1", "mlx5_1:1"), locked_bytes=None)
    assert (one.level, one.about) == ("note", "ucx")
    assert "mlx5_0:1" in one.cure


@pytest.mark.parametrize("setting", ["all", "mlx5_0:1", "mlx5_0", "^eth0", "lo,eth0"])
def test_devices_that_are_there_may_be_named(setting: str) -> None:
    ports = ("mlx5_0:1",)
    assert advised(ucx_net_devices=setting, rdma=ports, locked_bytes=None) == []


def test_a_missing_cache_is_a_note() -> None:
    (one,) = advised(hub_cache_there=False)
    assert (one.level, one.about) == ("note", "cache")
    assert "HF_HOME" in one.cure
