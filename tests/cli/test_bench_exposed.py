"""``splitserve bench exposed`` loads a split anew for every connector and round."""

import json
from pathlib import Path

import pytest

from flow.tiny_model import make_model_folder
from splitserve.cli import bench_exposed
from splitserve.errors import ConfigError
from splitserve.launch.group import FakeCosts, WorkerGroup


def run(model: Path, connectors: list[str]) -> None:
    code = bench_exposed.run(
        str(model),
        connectors=connectors,
        rounds=2,
        rate=20.0,
        seconds=1.0,
        prompt_tokens=40,
        tokens=16,
        seed=1,
        as_json=True,
        group=WorkerGroup(engine="fake", fake=FakeCosts(step_ms=2.0)),
    )
    assert code == 0


def test_every_connector_gets_the_same_load_in_every_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(make_model_folder(tmp_path / "tiny"), ["shm", "tcp"])
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    rounds, connectors, ratios = rows[:4], rows[4:6], rows[6:]
    order = [(row["round"], row["connector"]) for row in rounds]
    assert order == [(1, "shm"), (1, "tcp"), (2, "tcp"), (2, "shm")]
    asked = rounds[0]["requests"]
    for row in rounds:
        assert (row["requests"], row["errors"]) == (asked, 0)
        assert row["handoffs"] + row["untold"] == asked
        assert 0 < row["exposed_p50"] <= row["exposed_p95"] <= row["exposed_max"]
        assert 0 < row["ttft_p50"] <= row["ttft_p95"]
        assert 0 < row["itl_p50"] <= row["itl_p95"]
    for row in connectors:
        handoffs = [one["handoffs"] for one in rounds if one["connector"] == row["connector"]]
        assert (row["rounds"], row["handoffs"]) == (2, sum(handoffs))
    assert [row["connector"] for row in connectors] == ["shm", "tcp"]
    for row in ratios:
        assert (row["connector"], row["over"], row["rounds"]) == ("tcp", "shm", 2)
        assert 0 < row["min"] <= row["median"] <= row["max"]
    assert "round 2 of 2: shm" in err


@pytest.mark.parametrize(
    ("connectors", "message"),
    [(["shm", "shm"], "names one twice"), (["shm", "pigeon"], "pigeon")],
)
def test_what_is_wrong_is_said_before_anything_starts(
    tmp_path: Path, connectors: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "no-model", connectors)
