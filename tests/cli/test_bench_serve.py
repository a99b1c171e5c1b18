"""``splitserve bench serve`` starts shapes, loads them and prints a line per case."""

import json
from pathlib import Path

import pytest

from flow.tiny_model import make_model_folder
from splitserve.cli import bench_serve
from splitserve.errors import ConfigError
from splitserve.launch.topology import ModelAsked, WorkerGroup


def run(model: Path, group: WorkerGroup, shapes: list[str], cases: list[str]) -> None:
    code = bench_serve.run(
        ModelAsked(name=str(model)),
        group,
        shapes=shapes,
        urls=[],
        cases=cases,
        log_dir=None,
        as_json=True,
    )
    assert code == 0


def test_each_shape_is_started_and_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_model_folder(tmp_path / "tiny")
    fake = WorkerGroup(engine="fake")
    run(model, fake, ["colocated", "1p1d"], ["40/4x2"])
    out, err = capsys.readouterr()
    whole, split = [json.loads(line) for line in out.splitlines()]
    for row in (whole, split):
        assert (row["case"], row["n"], row["errors"]) == ("40/4x2", 10, 0)
        assert 0 < row["ttft_p50"] <= row["ttft_p90"] <= row["ttft_p99"]
        assert row["ready_s"] > 0
    assert (whole["served"], whole["handoffs"]) == ("colocated", 0)
    assert (split["served"], split["handoffs"], split["fallbacks"]) == ("1p1d", 10, 0)
    assert "prefill-0 ready" in err
    assert "1p1d: ready after" in err


@pytest.mark.parametrize(
    ("shapes", "cases", "message"),
    [
        (["1p"], [], "--shape '1p' is none; write colocated, 2colocated, 1p1d or 2p2d"),
        (["0p1d"], [], "--shape '0p1d' is none"),
        ([], ["1"], "'1' is not a case"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    tmp_path: Path, shapes: list[str], cases: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        run(tmp_path / "no-model", WorkerGroup(), shapes, cases)
    assert message in str(caught.value)
