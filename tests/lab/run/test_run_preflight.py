"""How many processes a study's load is sent from."""

import pytest

from splitserve.lab.mock.capacity import Capacity, CapacityLoad
from splitserve.lab.run import preflight
from splitserve.lab.run.preflight import PreflightNote, enough_processes

LOAD = CapacityLoad(rate=100, duration_s=1, prompt_tokens=1, max_tokens=1, gap_s=0.01)


class Machine:
    """Where one process carries ``each`` of the load."""

    def __init__(self, each: float) -> None:
        self.tried: list[int] = []
        self._each = each

    def found(self, processes: int) -> Capacity:
        self.tried.append(processes)
        late = processes * self._each < 1
        return Capacity(100, int(late), 0.0, 0.5 if late else 0.0001, 0.5, processes)

    async def one(self, load: CapacityLoad) -> Capacity:
        return self.found(1)

    async def several(self, load: CapacityLoad, processes: int) -> Capacity:
        return self.found(processes)


@pytest.mark.parametrize(
    ("each", "cores", "tried"),
    [(1.0, 8, [1]), (0.3, 8, [1, 2, 4]), (0.3, 3, [1, 2, 3]), (0.9, 1, [1])],
    ids=["one will do", "four", "as many as cores", "one core"],
)
async def test_the_fewest_processes_that_keep_up_are_taken(
    each: float, cores: int, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(each)
    monkeypatch.setattr(preflight, "measure_capacity", machine.one)
    monkeypatch.setattr(preflight, "measure_spread", machine.several)
    found = await enough_processes(LOAD, 0.001, cores)
    assert machine.tried == tried
    assert PreflightNote(True, "", found).processes == tried[-1]


def test_a_study_without_a_rate_sends_from_one_process() -> None:
    assert PreflightNote(True, "").processes == 1
