"""``splitserve bench turns`` brings a split up, talks to it and prints a line per turn."""

import json
from pathlib import Path

import pytest

from flow.tiny_model import make_model_folder
from splitserve.cli import bench_turns
from splitserve.launch.group import WorkerGroup


def run(model: Path, as_json: bool) -> None:
    code = bench_turns.run(
        str(model),
        connector="shm",
        conversations=1,
        turns=3,
        turn_tokens=40,
        tokens=24,
        as_json=as_json,
        group=WorkerGroup(engine="fake"),
    )
    assert code == 0


def test_each_turn_is_counted_beside_a_prompt_that_nobody_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(make_model_folder(tmp_path / "tiny"), as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    turns, ratios = rows[:3], rows[3:]
    assert [row["turn"] for row in turns] == [1, 2, 3]
    assert [row["prompt_tokens"] for row in turns] == [40, 104, 168]
    assert [row["fresh_computed"] for row in turns] == [40, 104, 168]
    # After the first turn prefill knows 2 blocks of 16 and decode 3, after the second 6 and 7.
    assert [row["computed"] for row in turns] == [40, 104 - 48, 168 - 112]
    assert [row["pulled"] for row in turns] == [0, 16, 16]
    for row in turns:
        assert 0 < row["ttft_min_ms"] <= row["ttft_ms"] <= row["ttft_max_ms"]
    assert [row["ratio"] for row in ratios] == ["turn 3 / turn 2", "fresh prompt / turn 3"]
    for row in ratios:
        assert 0 < row["min"] <= row["median"] <= row["max"]
        assert row["talks"] == 1
