"""``splitserve bench engine`` measures a runner and prints a line per case."""

import json

import pytest

from splitserve.cli import bench_engine
from splitserve.engine.api import KVSink, Row
from splitserve.engine.config import EngineConfig
from splitserve.engine.fake import FakeConfig, FakeRunner

CASES = [
    ("decode batch 1", 1, 64),
    ("decode batch 8", 8, 64),
    ("prefill 1024", 1, 1024),
    ("prefill 2048", 1, 2048),
]


class Recorder(FakeRunner):
    """Notes the shape of every step."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(FakeConfig())
        self.asked = config
        self.steps: list[list[tuple[int, int, bool]]] = []
        MADE.append(self)

    def launch(self, rows: list[Row], sink: KVSink | None) -> None:
        self.steps.append([(row.start, len(row.tokens), row.sample is not None) for row in rows])
        super().launch(rows, sink)


MADE: list[Recorder] = []


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setattr(bench_engine, "load", lambda target: Recorder)
    MADE.clear()
    return Recorder


def test_it_prints_one_object_a_line(
    recorder: type[Recorder], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_engine.run("tiny", "bfloat16", 1, True) == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["case"], line["batch"], line["tokens"]) for line in lines] == CASES
    for line in lines:
        assert 0 < line["p10_ms"] <= line["median_ms"] <= line["p90_ms"]
        assert (line["threads"], line["dtype"]) == (1, "bfloat16")
        assert line["torch"].startswith("2.")
    assert "measuring prefill 2048" in err


def test_it_prints_a_table_for_people(
    recorder: type[Recorder], capsys: pytest.CaptureFixture[str]
) -> None:
    bench_engine.run("tiny", "float32", 2, False)
    out = capsys.readouterr().out
    assert [line.split("  ")[0].strip() for line in out.splitlines()] == [c[0] for c in CASES]


def test_prompts_come_in_chunks_and_decodes_in_batches(recorder: type[Recorder]) -> None:
    bench_engine.run("tiny", "bfloat16", 1, True)
    [made] = MADE
    assert made.asked.model == "tiny"
    assert made.steps[0] == [(0, 64, True)]
    assert made.steps[1:65] == [[(64 + step, 1, True)] for step in range(64)]
    decode_8 = [step for step in made.steps if len(step) == 8]
    assert decode_8 == [[(64 + step, 1, True)] * 8 for step in range(64)]
    chunks = [(start, 512, start == 1536) for start in range(0, 2048, 512)]
    assert [step for [step] in made.steps[-4:]] == chunks
