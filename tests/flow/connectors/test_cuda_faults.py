"""Over every connector between GPUs, with the real engine: a copy that is met half-way by a death
or a stall, one that fails, and one that lands after its request is gone.

What a worker with no other beside it answers is the right answer. The connector hears of no wrong
byte between GPUs, so here none is made.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import httpx
import pytest
from client import body, complete
from cluster import Cluster, running, wait_until
from faults.cells import Fault
from faults.rig import DEADLINE_S, PROMPT, Asked, rigged
from gpus import FLAGS, make_wide_model, two_gpus

from connectors.half_way import (
    HALVES,
    LinkedRig,
    check_unharmed,
    half_written,
    land_late,
    meet,
)
from connectors.usable import need
from splitserve.transfer.registry import connectors_for

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SHORT: Final = 6
"""Tokens of an answer that something disturbs."""

APART: Final = 0.04
"""Nats that each chosen token should be above the next: what is computed in steps of other sizes is
rounded in other places, and bfloat16 tells scores of 1 to 2 no finer than 0.008."""

TRIES: Final = 20
"""Of so many prompts the clearest is asked."""

VICTIMS: Final = {Fault.PREFILL_KILLED: {"p0"}, Fault.DECODE_KILLED: {"d0"}}


@dataclass
class ComputingRig(LinkedRig):
    """``alone`` is a cluster of one worker, which is asked for the right answers."""

    alone: Cluster | None = None

    def right_answer(self, ids: list[int], max_tokens: int) -> list[int]:
        return complete(self._alone, ids, max_tokens, ignore_eos=True)

    def ask(self, length: int, max_tokens: int = SHORT) -> Asked:
        return self._ask_clear([], length, max_tokens)

    def ask_after(self, asked: Asked, length: int, max_tokens: int = SHORT) -> Asked:
        return self._ask_clear([*asked.ids, *asked.answer], length, max_tokens)

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.workers.items()}

    def _ask_clear(self, begin: Sequence[int], length: int, max_tokens: int) -> Asked:
        """Asks what has a clear answer; of one that is not short, with a clear beginning."""
        clearest, lead = list(begin), -1.0
        for _ in range(TRIES):
            ids = [*begin, *self.prompt(next(self._serial), length)]
            own = self._lead(ids, min(max_tokens, SHORT))
            clearest, lead = (ids, own) if own > lead else (clearest, lead)
            if lead > APART:
                break
        asked = self.ask_this(clearest, max_tokens)
        print(f"{asked.name}: {len(clearest)} tokens, each chosen by {lead:.3f} nats or more")
        return asked

    def _lead(self, ids: list[int], count: int) -> float:
        """The least that one of the answer's first tokens is above the next likely."""
        asked = body(self._alone, ids, count, ignore_eos=True, logprobs=2)
        answer = httpx.post(f"{self._alone.url}/v1/completions", json=asked, timeout=30).json()
        scores = [sorted(top.values()) for top in answer["choices"][0]["logprobs"]["top_logprobs"]]
        return min(top[-1] - top[-2] if len(top) > 1 else 0.0 for top in scores)

    @property
    def _alone(self) -> Cluster:
        assert self.alone is not None
        return self.alone


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_wide_model(tmp_path_factory.mktemp("gpu-faults") / "small"))


@pytest.fixture(scope="module")
def alone(wide_model: str) -> Iterator[Cluster]:
    flags = (*FLAGS, "--no-enable-prefix-caching", "--device", "cuda:0")
    with running(wide_model, [("colocated", "c0")], flags) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=connectors_for("cuda"))
def rig(wide_model: str, alone: Cluster, request: pytest.FixtureRequest) -> Iterator[ComputingRig]:
    connector = str(request.param)
    need(connector)
    roles = [("prefill", "p0"), ("decode", "d0")]
    devices = zip(("p0", "d0"), two_gpus(), strict=True)
    own_flags = {name: ("--device", device) for name, device in devices}
    flags = (*FLAGS, "--connector", connector)
    with rigged(wide_model, roles, flags, ComputingRig, own_flags) as rig:
        rig.connector, rig.alone = connector, alone
        yield rig


def meet_alone(rig: ComputingRig, half: str, fault: Fault) -> None:
    """``meet``; and nobody but who was killed has had to be started again."""
    rig.heal()
    before = rig.pids()
    meet(rig, half, fault)
    after = rig.pids()
    assert {name for name in before if before[name] != after[name]} == VICTIMS.get(fault, set())


@pytest.mark.parametrize(
    "fault",
    [
        Fault.PREFILL_KILLED,
        Fault.DECODE_KILLED,
        Fault.PREFILL_FROZEN,
        Fault.DECODE_FROZEN,
        Fault.TRANSFER_STALLS,
        Fault.CLIENT_GONE,
    ],
    ids=lambda fault: fault.value,
)
def test_a_write_between_gpus_that_is_met_half_way(rig: ComputingRig, fault: Fault) -> None:
    meet_alone(rig, "write", fault)


@pytest.mark.parametrize(
    "fault", [Fault.PREFILL_KILLED, Fault.DECODE_KILLED], ids=lambda fault: fault.value
)
def test_a_read_between_gpus_that_is_met_half_way(rig: ComputingRig, fault: Fault) -> None:
    meet_alone(rig, "read", fault)


def test_a_write_that_fails_is_computed_again_or_one_honest_error(rig: ComputingRig) -> None:
    rig.heal()
    before = rig.total("splitserve_fallback_total")
    rig.fault("p0", "fail")
    asked = rig.ask(PROMPT)
    asked.stream.read_all(DEADLINE_S * 2)
    assert asked.right or asked.honest, asked.told()
    assert not asked.right or rig.total("splitserve_fallback_total") > before
    check_unharmed(rig, [])


def test_what_a_frozen_worker_writes_once_it_thaws_harms_nobody(rig: ComputingRig) -> None:
    """Meanwhile others are answered, and what they are given is not what may still be written."""
    rig.heal()
    asked = half_written(rig)
    rig.workers["p0"].freeze()
    rig.fault("p0", "")
    asked.stream.read_all(DEADLINE_S * 2)
    assert asked.right or asked.honest, asked.told()
    wait_until(lambda: rig.quarantined("d0") > 0, 5, lambda: f"none in {rig.kv_blocks()}")
    others = [rig.ask(PROMPT) for _ in range(3)]
    for other in others:
        other.stream.read_all()
        assert other.right, other.told()
    assert rig.quarantined("d0") > 0, rig.kv_blocks()
    rig.workers["p0"].thaw()
    check_unharmed(rig, others)


@pytest.mark.parametrize("half", sorted(HALVES))
def test_what_lands_on_a_gpu_after_its_request_is_gone_harms_nobody(
    rig: ComputingRig, half: str
) -> None:
    land_late(rig, half)
