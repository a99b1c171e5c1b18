"""Connector tcp between processes whose wire damages frames, stops in the middle of one, or is cut.

What one connector does about it is in ``transfer/tcp``; here is what becomes of requests.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cluster import wait_until
from faults.rig import DEADLINE_S, FLAGS, PROMPT, SLOW, Asked, Rig, rigged

from connectors.wire import Wire, WiredRelay

MID_FRAME = 700
"""Bytes: some of the first frames of a prompt, of about a thousand each."""

ALL = 1 << 30


@dataclass
class WiredRig(Rig):
    wires: dict[str, Wire] = field(default_factory=dict)

    def relay(self, public: Path, private: Path) -> WiredRelay:
        relay = WiredRelay(public, private)
        self.wires[public.stem] = relay.wire
        return relay

    @property
    def wire(self) -> Wire:
        """To the decode worker's pool."""
        return self.wires["d0"]

    def heal(self) -> None:
        self.wire.mend()
        super().heal()

    def fallbacks(self) -> float:
        return self.total("splitserve_fallback_total")

    def answered(self, asked: Asked) -> Asked:
        asked.stream.read_all(DEADLINE_S * 2)
        assert asked.right or asked.honest, asked.told()
        return asked

    def check_wire(self) -> None:
        """All is as in the beginning, and another prompt goes over the wire."""
        wait_until(self.settled, 5, lambda: f"blocks are not given back: {self.kv_blocks()}")
        self.heal()
        before = self.total("splitserve_handoff_bytes_total")
        assert self.answered(self.ask(PROMPT)).right
        assert self.total("splitserve_handoff_bytes_total") > before


@pytest.fixture(scope="module")
def rig(model: str) -> Iterator[WiredRig]:
    roles = [("prefill", "p0"), ("decode", "d0")]
    with rigged(model, roles, (*FLAGS, *SLOW, "--connector", "tcp"), WiredRig) as rig:
        yield rig


def test_frames_damaged_on_the_way_are_sent_again(rig: WiredRig) -> None:
    rig.heal()
    before = rig.fallbacks()
    rig.wire.damage(1)
    first = rig.answered(rig.ask(PROMPT, 60))
    assert first.right, first.told()
    assert rig.wire.to_damage() == 0
    pulled = rig.total("splitserve_pulled_tokens_total")
    rig.wire.damage(1)
    turn = rig.answered(rig.ask_this([*first.ids, *first.answer, *rig.prompt(rig.begun, 20)]))
    assert turn.right, turn.told()
    assert rig.wire.to_damage() == 0
    assert rig.total("splitserve_pulled_tokens_total") > pulled
    assert rig.fallbacks() == before
    assert not any(map(rig.ended, rig.roles))


def test_what_is_damaged_each_time_is_computed_elsewhere(rig: WiredRig) -> None:
    rig.heal()
    before = rig.fallbacks()
    rig.wire.damage(ALL)
    asked = rig.answered(rig.ask(PROMPT))
    assert asked.right, asked.told()
    assert rig.fallbacks() > before
    assert not any(map(rig.ended, rig.roles))
    rig.check_wire()


BREAKS: dict[str, Callable[[WiredRig], None]] = {
    "cut": lambda rig: rig.wire.cut(),
    "stalled": lambda rig: None,
    "prefill_killed": lambda rig: rig.workers["p0"].kill(),
    "decode_killed": lambda rig: rig.workers["d0"].kill(),
}


@pytest.mark.parametrize("how", sorted(BREAKS))
def test_a_wire_that_breaks_in_the_middle_of_a_frame(rig: WiredRig, how: str) -> None:
    rig.heal()
    rig.wire.stop_after(MID_FRAME)
    asked = rig.ask(PROMPT)
    wait_until(rig.wire.has_stopped, 10, lambda: "nothing was sent")
    BREAKS[how](rig)
    rig.answered(asked)
    rig.check_wire()
