"""A worker whose heads are split over two pools dies when one of them has all that was written and
the other a part.
"""

from collections.abc import Iterator

import pytest
from faults.acts import check_answers, check_ledger, go_on, inject
from faults.cells import Fault
from faults.rig import DEADLINE_S, FLAGS, LARGE, SLOW, Asked, is_, rigged

from connectors.half_way import LinkedRig
from connectors.sides import DECODE, PREFILL, Side, Sides
from connectors.usable import over
from splitserve.protocol.handoff import PrefillDone
from splitserve.router.handoff.states import State

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
    asked = one_pool_half_written(rig)
    inject(rig, Fault.DECODE_KILLED, asked)
    go_on(rig, Fault.DECODE_KILLED, State.TRANSFERRING)
    asked.stream.read_all(DEADLINE_S * 2)
    check_answers(Fault.DECODE_KILLED, [asked])
    check_ledger(rig, State.TRANSFERRING, Fault.DECODE_KILLED)
    rig.check_link()
    SIDES.check(rig)
