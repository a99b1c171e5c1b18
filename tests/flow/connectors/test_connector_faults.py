"""Over every connector: a copy that is met half-way by a death, a stall or wrong bytes, and one
that lands after its request is gone. The right answer or one honest error; no block is lost, and
none is written into that belongs to another; and the next prompt goes by the same connector again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from cluster import wait_until
from faults.cells import Fault
from faults.rig import DEADLINE_S, FLAGS, SLOW, rigged

from connectors.half_way import HALVES, LinkedRig, half_written, land_late, meet
from connectors.usable import over


@dataclass
class NetworkedRig(LinkedRig):
    def environment(self, name: str) -> dict[str, str]:
        # What NIXL uses between hosts. On one host it would copy without the other process.
        return {**super().environment(name), "UCX_TLS": "tcp"}


@pytest.fixture(scope="module")
def rig(connector: str, model: str) -> Iterator[LinkedRig]:
    roles = [("prefill", "p0"), ("decode", "d0")]
    flags = (*FLAGS, *SLOW, "--connector", connector)
    with rigged(model, roles, flags, NetworkedRig) as rig:
        rig.connector = connector
        yield rig


POSTING = [over("nixl"), over("mooncake")]
"""Writes over shm that are met half-way are cells of the matrix in ``flow/faults``; those over tcp
are broken on the wire, in ``test_tcp_wire``."""


@pytest.mark.parametrize("connector", POSTING, indirect=True)
@pytest.mark.parametrize(
    "fault",
    [
        Fault.PREFILL_KILLED,
        Fault.DECODE_KILLED,
        Fault.TRANSFER_STALLS,
        Fault.TRANSFER_FAILS,
        Fault.TRANSFER_CORRUPT,
    ],
    ids=lambda fault: fault.value,
)
def test_a_write_that_is_met_half_way(rig: LinkedRig, fault: Fault) -> None:
    meet(rig, "write", fault)


@pytest.mark.parametrize(
    "fault", [Fault.PREFILL_KILLED, Fault.DECODE_KILLED], ids=lambda fault: fault.value
)
def test_a_read_that_is_met_half_way(rig: LinkedRig, fault: Fault) -> None:
    meet(rig, "read", fault)


@pytest.mark.parametrize("connector", [over("tcp"), *POSTING], indirect=True)
def test_a_write_that_a_frozen_process_takes_when_it_thaws(rig: LinkedRig) -> None:
    meet(rig, "write", Fault.DECODE_FROZEN)


@pytest.mark.parametrize("connector", POSTING, indirect=True)
def test_a_write_to_a_frozen_process_that_is_then_killed(rig: LinkedRig) -> None:
    """It is under way when the other process dies, which has a part in it."""
    rig.heal()
    asked = half_written(rig)
    rig.workers["d0"].freeze()
    rig.fault("p0", "")
    wait_until(lambda: rig.is_missed("d0"), 5, lambda: "the frozen worker is not missed")
    rig.workers["d0"].kill()
    asked.stream.read_all(DEADLINE_S * 2)
    assert asked.right or asked.honest, asked.told()
    wait_until(rig.settled, 5, lambda: f"blocks are not given back: {rig.kv_blocks()}")
    rig.check_link()


@pytest.mark.parametrize("half", sorted(HALVES))
def test_what_lands_after_its_request_is_gone_harms_nobody(rig: LinkedRig, half: str) -> None:
    land_late(rig, half)
