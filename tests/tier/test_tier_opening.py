"""The tier as a worker asks for it: private, within its bounds, and gone when nobody is left."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tier_rig import FILE, LAYOUT, Pool, blocks_in, content, digest

from splitserve.errors import ConfigError
from splitserve.tier.config import TierConfig
from splitserve.tier.copier import HostBlockCopier
from splitserve.tier.folder import check_room, private_folder
from splitserve.tier.opening import Tier, open_tier
from splitserve.tier.worker_thread import Loaded, Stored

MODEL = "a model"


class Copier(HostBlockCopier):
    def __init__(self, pool: Pool) -> None:
        super().__init__(pool.region, LAYOUT)
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Host:
    """``shared`` stands for the file system in memory."""

    def __init__(self, root: Path) -> None:
        self.shared = root / "shm"
        self.shared.mkdir()
        self.disk = root / "disk"
        self.pool = Pool()
        self.tiers: list[Tier] = []
        self.copiers: list[Copier] = []

    def open_copier(self) -> Copier:
        self.copiers.append(Copier(self.pool))
        return self.copiers[-1]

    @property
    def memory(self) -> Path:
        return self.shared / f"splitserve-{os.geteuid()}" / "kv"

    def open(self, config: TierConfig, model: str = MODEL) -> Tier:
        tier = open_tier(config, model, LAYOUT, self.open_copier, self.shared)
        assert tier is not None
        self.tiers.append(tier)
        return tier

    def both(self, blocks: int = 4) -> TierConfig:
        return TierConfig(blocks * FILE, self.disk, blocks * FILE)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    for tier in host.tiers:
        tier.close()


def end(tier: Tier) -> Loaded | Stored:
    while not (ended := tier.thread.poll()):
        time.sleep(0.0005)  # lets the other thread run
    (only,) = ended
    return only


def store(host: Host, tier: Tier, number: int) -> None:
    host.pool.write(0, content(number))
    tier.thread.store(digest(number), 0)
    assert end(tier) == Stored(0)


def found(host: Host, tier: Tier, number: int) -> bool:
    load = tier.thread.load([digest(number)], [1])
    ended = end(tier)
    assert isinstance(ended, Loaded)
    assert ended.load == load
    assert not ended.count or host.pool.read(1) == content(number)
    return ended.count == 1


def test_nothing_asked_for_is_no_tier(host: Host) -> None:
    assert open_tier(TierConfig(), MODEL, LAYOUT, host.open_copier, host.shared) is None
    assert list(host.shared.iterdir()) == []


def test_workers_of_a_host_share_it(host: Host) -> None:
    one, two = host.open(host.both()), host.open(host.both())
    store(host, one, 1)
    assert found(host, two, 1)


def test_another_model_finds_nothing(host: Host) -> None:
    store(host, host.open(host.both()), 1)
    assert not found(host, host.open(host.both(), "another model"), 1)


def test_every_folder_is_private(host: Host) -> None:
    before = os.umask(0)
    try:
        store(host, host.open(host.both()), 1)
    finally:
        os.umask(before)
    made = [host.memory.parent, host.disk]
    for path in [*made, *host.memory.parent.rglob("*"), *host.disk.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_memory_is_given_back_by_the_last_worker_and_the_disk_keeps_its_blocks(
    host: Host,
) -> None:
    one, two = host.open(host.both(1)), host.open(host.both(1))
    store(host, one, 1)
    store(host, one, 2)
    one.close()
    assert blocks_in(host.memory) == {digest(2)}
    two.close()
    assert blocks_in(host.memory) == set()
    assert blocks_in(host.disk) == {digest(1)}
    assert found(host, host.open(host.both()), 1)


def test_a_tier_of_memory_alone_and_one_of_disk_alone(host: Host) -> None:
    memory = host.open(TierConfig(memory_bytes=2 * FILE))
    disk = host.open(TierConfig(disk_path=host.disk, disk_bytes=2 * FILE))
    store(host, memory, 1)
    store(host, disk, 2)
    assert (blocks_in(host.memory), blocks_in(host.disk)) == ({digest(1)}, {digest(2)})


def test_a_tier_closes_twice(host: Host) -> None:
    tier = host.open(host.both())
    tier.close()
    tier.close()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (TierConfig(memory_bytes=-1), "--kv-tier-memory-bytes"),
        (TierConfig(disk_bytes=1), "--kv-tier-disk-path"),
        (TierConfig(disk_path=Path("somewhere")), "--kv-tier-disk-bytes"),
        (TierConfig(memory_bytes=1 << 60), "--shm-size"),
    ],
    ids=["negative", "no_folder", "no_size", "too_large"],
)
def test_what_cannot_be_is_refused_by_name(host: Host, config: TierConfig, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        open_tier(config, MODEL, LAYOUT, host.open_copier, host.shared)
    assert host.copiers == []


def test_the_way_to_the_pool_is_closed_with_the_tier(host: Host) -> None:
    tier = host.open(host.both())
    (copier,) = host.copiers
    assert not copier.closed
    tier.close()
    assert copier.closed


def test_a_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o750)
    with pytest.raises(ConfigError, match=r"--flag: .* chmod 700"):
        private_folder(path, "--flag")


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(0o700)
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(ConfigError, match="is not a folder"):
        private_folder(link, "--flag")


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_folder(tmp_path / "ours", "--flag")
    stranger = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: stranger)
    with pytest.raises(ConfigError, match="belongs to another user"):
        private_folder(tmp_path / "ours", "--flag")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match="--flag"):
        private_folder(file / "folder", "--flag")


def test_room_that_is_there_is_not_refused(tmp_path: Path) -> None:
    check_room(tmp_path, 1, "--flag", "cure")
    with pytest.raises(ConfigError, match=r"--flag is \d+, but .*: cure"):
        check_room(tmp_path, 1 << 60, "--flag", "cure")
