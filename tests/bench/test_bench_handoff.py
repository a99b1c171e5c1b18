"""What ``bench handoff`` reads, and that it notices bytes that did not arrive."""

import pytest

from splitserve.bench.handoff import measure_handoff
from splitserve.bench.pool import BarePool
from splitserve.errors import TransferFailed
from splitserve.protocol.memory import KVLayout

LAYOUT = KVLayout("bfloat16", 3, 2, 8, 4, 48, 2)


def test_both_placements_are_read_and_their_bytes_counted() -> None:
    packed, scattered = measure_handoff("shm", LAYOUT, tokens=62, repeats=2)
    assert [packed.blocks, scattered.blocks] == ["packed", "scattered"]
    assert packed.kv_bytes == scattered.kv_bytes == 16 * LAYOUT.block_bytes * LAYOUT.num_layers
    assert packed.copies == LAYOUT.num_layers
    assert scattered.copies > packed.copies
    for reading in (packed, scattered):
        assert (reading.source_device, reading.target_device) == ("cpu", "cpu")
        assert reading.gb_per_s == pytest.approx(reading.kv_bytes / reading.write_ms / 1e6)
        assert (reading.socket_gb_per_s, reading.of_socket) == (0.0, 0.0)


def test_tcp_is_read_beside_a_plain_socket() -> None:
    for reading in measure_handoff("tcp", LAYOUT, tokens=62, repeats=1):
        assert reading.of_socket == pytest.approx(reading.gb_per_s / reading.socket_gb_per_s)


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
