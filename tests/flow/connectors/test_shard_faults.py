"""A worker whose heads are split over two pools dies when one of them has all that was written and
the other a part.
"""

from collections.abc import Iterator

import pytest
from faults.cells import Fault
from faults.rig import FLAGS, LARGE, SLOW, Asked, is_, rigged

from connectors.half_way import LinkedRig, go_through
from connectors.sides import DECODE, PREFILL, Side, Sides
from connectors.usable import over
from splitserve.protocol.handoff import PrefillDone

SIDES = Sides(Side(4), Side(4, shards=2))


@pytest.fixture(scope="module")
def rig(connector: str, model: str) -> Iterator[LinkedRig]:
    roles = [("prefill", PREFILL), ("decode", DECODE)]
    flags = (*FLAGS, *SLOW, "--connector", connector, "--fake-num-kv-heads", "4")
    with rigged(model, roles, flags, LinkedRig, SIDES.flags) as rig:
        rig.connector = connector
        SIDES.check(rig)
        yield rig


def one_pool_half_written(rig: LinkedRig) -> Asked:
    rig.fault(PREFILL, "half_pool")
    asked = rig.ask(LARGE)
    asked.stream.read(1)
    assert not rig.relays[PREFILL].saw(is_(PrefillDone, asked.name)), asked.told()
    return asked


@pytest.mark.parametrize(
    "connector",
    [over("shm"), over("tcp", interop=True), over("nixl"), over("mooncake")],
    indirect=True,
)
def test_a_death_between_the_writes_to_two_pools(rig: LinkedRig) -> None:
    rig.heal()
    go_through(rig, one_pool_half_written(rig), Fault.DECODE_KILLED)
    SIDES.check(rig)
