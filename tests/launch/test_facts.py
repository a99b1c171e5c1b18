import os
from pathlib import Path

from splitserve.launch.facts import available_bytes, cgroup_room_bytes, gpu_count, machine_facts

UNLIMITED = 1 << 62


def test_this_machine_has_cores_and_memory() -> None:
    facts = machine_facts()
    assert set(facts.cores) == os.sched_getaffinity(0)
    assert 0 < facts.memory_bytes < UNLIMITED


def test_available_memory_is_read_from_meminfo(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:      64 kB\n")
    assert available_bytes(meminfo) == 64 * 1024


def cgroup(root: Path, limit: str) -> Path:
    root.mkdir()
    (root / "memory.max").write_text(f"{limit}\n")
    (root / "memory.current").write_text("700\n")
    (root / "memory.stat").write_text("anon 500\ninactive_file 100\n")
    return root


def test_a_containers_limit_counts_less_what_is_used(tmp_path: Path) -> None:
    assert cgroup_room_bytes(cgroup(tmp_path / "a", "1000")) == 400
    assert cgroup_room_bytes(cgroup(tmp_path / "b", "500")) == 0


def test_without_a_limit_the_room_is_as_good_as_endless(tmp_path: Path) -> None:
    assert cgroup_room_bytes(cgroup(tmp_path / "a", "max")) == UNLIMITED
    assert cgroup_room_bytes(tmp_path / "missing") == UNLIMITED


def test_gpus_are_counted_by_their_device_files(tmp_path: Path) -> None:
    assert gpu_count(tmp_path) is None
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia11", "nvidia-caps", "null"):
        (tmp_path / name).touch()
    assert gpu_count(tmp_path) == 2
