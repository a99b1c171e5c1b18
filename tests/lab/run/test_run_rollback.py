"""Back from a split of fake engines to one that does both, under load."""

from pathlib import Path

import pytest

from lab.run.rig import Heard, passed
from lab.run.tiny_study import topology_study
from splitserve.lab.arms.opened import opened
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.plan.phases import runs_of
from splitserve.lab.plan.resolve import read_plan
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.gather import gather
from splitserve.lab.run.rollback.go_back import in_flight
from splitserve.lab.run.sources import source_of
from splitserve.lab.run.study import Setting, run_study
from splitserve.modelstore.progress import Silent


def record(name: str, intended_s: float, ended_s: float, sent: bool = True) -> RequestRecord:
    return RequestRecord(
        request_id=name,
        arm="split",
        run="1",
        intended_s=intended_s,
        sent_s=intended_s if sent else None,
        first_byte_s=None,
        events=[],
        ended_s=ended_s,
        outcome=Outcome.OK,
        counting=Counting.IDS,
    )


def test_under_way_is_what_was_sent_and_had_not_ended() -> None:
    records = [
        record("before", 1.0, 2.0),
        record("under way", 1.0, 4.0),
        record("never sent", 1.0, 4.0, sent=False),
        record("after", 3.5, 5.0),
    ]
    assert [one.request_id for one in in_flight(records, 3.0)] == ["under way"]


async def test_the_way_back_is_proved_by_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = topology_study(tmp_path, more='[rollback]\ntarget = "one"')
    plan, folder = read_plan(study), StudyFolder(tmp_path / "out")
    folder.create(plan, study)
    back = tuple(run for run in runs_of(plan) if run.phase == "rollback")
    monkeypatch.setattr("splitserve.lab.run.study.runs_of", lambda _: back)
    setting = Setting(
        folder,
        source_of(plan, tmp_path, Silent()),
        lambda arm: opened(arm, tmp_path / "arms" / arm.label, tmp_path, "salt"),
        passed,
        Heard(),
    )
    await run_study(plan, setting)
    proof = gather(plan, folder).rollback
    assert proof is not None
    assert 0 < proof.return_s < proof.limit_s
    assert (proof.processes_left, proof.ports_left_open, proof.config_lines_changed) == (0, 0, 0)
    assert proof.gpu_memory_above_mib == 0
    assert proof.same_outputs
    assert proof.ttft.pairs == 4
