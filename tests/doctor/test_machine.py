"""This machine, and made-up ones: what is read from the kernel's files."""

import os
from pathlib import Path

import pytest

from splitserve import __version__
from splitserve.doctor.findings import NumaNode
from splitserve.doctor.machine import core_numbers, gather, hub_cache, memory_lines
from splitserve.doctor.versions import first_version, ucx_version

MEMINFO = """MemTotal:  1000 kB
MemFree:  10 kB
MemAvailable:  600 kB
SwapTotal:  300 kB
SwapFree:  100 kB
HugePages_Total:       0
"""


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", MEMINFO)
    cpu = "processor\t: {}\nmodel name\t: Fast CPU\n\n"
    write(tmp_path / "proc/cpuinfo", cpu.format(0) + cpu.format(1))
    write(tmp_path / "proc/loadavg", "1.25 0.50 0.10 1/200 4711\n")
    (tmp_path / "dev").mkdir()
    nodes, cpus = tmp_path / "sys/devices/system/node", tmp_path / "sys/devices/system/cpu"
    write(nodes / "node1/cpulist", "4-7\n")
    write(nodes / "node0/cpulist", "0-3\n")
    write(nodes / "online", "0-1\n")
    for core, governor in enumerate(("powersave", "performance", "powersave")):
        write(cpus / f"cpu{core}/cpufreq/scaling_governor", f"{governor}\n")
    cards = tmp_path / "sys/class/infiniband"
    write(cards / "mlx5_0/ports/1/state", "4: ACTIVE\n")
    write(cards / "mlx5_1/ports/1/state", "1: DOWN\n")
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    return tmp_path


def test_a_made_up_machine_is_read(root: Path) -> None:
    environ = {"UCX_TLS": "tcp", "HF_HOME": str(root / "hf")}
    found = gather(root, environ)
    assert (found.memory_bytes, found.available_bytes) == (1000 * 1024, 600 * 1024)
    assert found.swap_bytes == 200 * 1024
    assert (found.cpu, found.cpus, found.load) == ("Fast CPU", 2, 1.25)
    assert found.numa == (NumaNode(0, (0, 1, 2, 3)), NumaNode(1, (4, 5, 6, 7)))
    assert found.governors == ("performance", "powersave")
    assert (found.rdma, found.networks) == (("mlx5_0:1",), ("eth0",))
    assert (found.shm_bytes, found.shm_free_bytes) == (0, 0)
    assert (found.ucx_tls, found.ucx_net_devices) == ("tcp", None)
    assert (found.hub_cache, found.hub_cache_there) == (str(root / "hf/hub"), False)


def test_this_machine_is_read() -> None:
    found = gather()
    assert set(found.cores) == os.sched_getaffinity(0)
    assert found.available_bytes > 0
    assert found.versions["splitserve"] == __version__


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0-2,8", (0, 1, 2, 8)), ("3", (3,)), ("", ()), ("a,1", (1,)), ("2-b", ())],
)
def test_a_kernels_list_of_cores_is_read(text: str, cores: tuple[int, ...]) -> None:
    assert core_numbers(text) == cores


def test_lines_without_a_unit_are_no_sizes() -> None:
    assert "HugePages_Total" not in memory_lines(MEMINFO)


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
    ],
)
def test_the_hubs_cache_is_where_its_client_looks(environ: dict[str, str], path: str) -> None:
    assert hub_cache(environ) == Path(path)


def test_the_hubs_cache_is_in_the_home_by_itself() -> None:
    assert hub_cache({}) == Path.home() / ".cache/huggingface/hub"


def test_versions_are_those_of_installed_packages() -> None:
    assert first_version(("surely-not-installed", "msgspec")) is not None
    assert first_version(("surely-not-installed",)) is None


def test_ucx_tells_its_version_in_two_ways() -> None:
    assert ucx_version("# Library version: 1.19.0\n# Library path: /x") == "1.19.0"
    assert ucx_version("# UCT version=1.10.1 revision 6a5856e") == "1.10.1"
    assert ucx_version("") is None
