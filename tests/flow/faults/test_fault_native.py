"""Some cells of the matrix with the real engine: a small model with random weights."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from client import complete
from tiny_model import make_model_folder, make_weights

from faults.acts import run_cell
from faults.cells import Fault
from faults.rig import PROBE, PROMPT, Rig, rigged
from splitserve.router.handoff.states import State

NATIVE = ("--dtype", "float32", "--kv-cache-memory-bytes", "8MiB")
ALONE = ("--no-enable-prefix-caching", "--max-num-batched-tokens", "32")
"""A prompt that was answered before is computed and moved again."""

CELLS = [
    (State.PREFILLING, Fault.PREFILL_KILLED),
    (State.DECODING, Fault.DECODE_KILLED),
    (State.DECODING, Fault.CLIENT_GONE),
    (State.TRANSFERRING, Fault.TRANSFER_FAILS),
    (State.TRANSFERRING, Fault.DUPLICATE_KV_READY),
    (State.RECOMPUTING, Fault.DECODE_FROZEN),
]


@dataclass
class NativeRig(Rig):
    """Asks the same again and again; ``known`` is what undisturbed workers answered, by length."""

    known: dict[int, list[int]] = field(default_factory=dict)

    def prompt(self, serial: int, length: int) -> list[int]:
        return super().prompt(0, length)

    def right_answer(self, ids: list[int], max_tokens: int) -> list[int]:
        return self.known[len(ids)][:max_tokens]


@pytest.fixture(scope="module")
def weighed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny model with weights."""
    folder = make_model_folder(tmp_path_factory.mktemp("weighed") / "tiny")
    make_weights(folder)
    return str(folder)


@pytest.fixture(scope="module")
def native(weighed: str) -> Iterator[Rig]:
    roles = [("prefill", "p0"), ("decode", "d0")]
    with rigged(weighed, roles, (*NATIVE, *ALONE), NativeRig) as rig:
        for length in (PROBE, PROMPT):
            rig.known[length] = complete(rig, rig.prompt(0, length), 100, ignore_eos=True)
        yield rig


@pytest.mark.parametrize(("state", "fault"), CELLS, ids=lambda part: part.value)
def test_cell(native: Rig, state: State, fault: Fault) -> None:
    run_cell(native, state, fault)
