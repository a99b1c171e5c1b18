"""What ``bench handoff`` reads, and that it notices bytes that did not arrive."""

from importlib import import_module

import pytest

from splitserve.bench.handoff import measure_handoff
from splitserve.bench.handoff_apart import measure_apart
from splitserve.bench.pool import BarePool
from splitserve.errors import ConfigError, TransferFailed
from splitserve.protocol.memory import KVLayout

LIBRARIES = [("nixl", "nixl"), ("mooncake", "mooncake.engine")]
LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 48, 2)


def test_each_placement_is_read_and_its_bytes_counted() -> None:
    readings = packed, used, scattered = list(measure_handoff("shm", LAYOUT, tokens=62, repeats=2))
    assert [reading.blocks for reading in readings] == ["packed", "used", "scattered"]
    assert packed.copies == LAYOUT.num_layers
    assert packed.copies <= used.copies < scattered.copies
    for reading in readings:
        assert reading.kv_bytes == 16 * LAYOUT.block_bytes * LAYOUT.num_layers
        assert (reading.source_device, reading.target_device) == ("cpu", "cpu")
        assert reading.gb_per_s == pytest.approx(reading.kv_bytes / reading.write_ms / 1e6)
        assert 0 < reading.of_memcpy_min <= reading.of_memcpy <= reading.of_memcpy_max
        assert (reading.plain_gb_per_s, reading.of_plain, reading.checksums) == (0.0, 0.0, None)


def test_tcp_is_read_with_and_without_checksums_beside_a_plain_socket() -> None:
    readings = list(measure_handoff("tcp", LAYOUT, tokens=62, repeats=1))
    assert [(one.checksums, one.blocks) for one in readings] == [
        (True, "packed"),
        (True, "used"),
        (True, "scattered"),
        (False, "packed"),
        (False, "used"),
        (False, "scattered"),
    ]
    for reading in readings:
        assert reading.of_plain == pytest.approx(reading.gb_per_s / reading.plain_gb_per_s)


@pytest.mark.parametrize(("connector", "package"), LIBRARIES)
def test_a_library_is_read_beside_its_connector(connector: str, package: str) -> None:
    try:
        import_module(package)
    except ImportError as error:
        pytest.skip(f"the package of extra {connector} cannot be used: {error}")
    for reading in measure_apart(connector, LAYOUT, tokens=62, repeats=1):
        assert reading.of_plain == pytest.approx(reading.gb_per_s / reading.plain_gb_per_s)


def test_what_goes_wrong_in_the_measuring_process_is_raised_in_this_one() -> None:
    with pytest.raises(ConfigError, match="unknown connector 'pigeon'"):
        list(measure_apart("pigeon", LAYOUT, tokens=62, repeats=1))


def test_other_bytes_than_were_sent_fail_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    # The receiving process is spawned, so only the sending side sees this.
    monkeypatch.setattr(BarePool, "digest", lambda *_: b"")
    with pytest.raises(TransferFailed, match="other bytes"):
        list(measure_handoff("shm", LAYOUT, tokens=62, repeats=1))


def test_a_digest_covers_the_named_blocks_of_all_layers() -> None:
    pool = BarePool(LAYOUT)
    pool.fill()
    first, again, swapped = pool.digest([3, 5]), pool.digest([3, 5]), pool.digest([5, 3])
    assert first == again != swapped
    pool.close()
