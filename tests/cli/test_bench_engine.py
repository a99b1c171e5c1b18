"""``splitserve bench engine`` measures a runner and prints a line per case."""

import json

import pytest

from splitserve.cli import bench_engine
from splitserve.engine.api import PENDING, KVSink, Row
from splitserve.engine.config import EngineConfig
from splitserve.engine.fake import FakeConfig, FakeRunner
from splitserve.errors import ConfigError

CPU_CASES = [
    ("decode batch 1 at 64", 1, 64),
    ("decode batch 8 at 64", 8, 64),
    ("prefill 1024", 1, 1024),
    ("prefill 2048", 1, 2048),
]
CUDA_CASES = [
    ("decode batch 1 at 512", 1, 512),
    ("decode batch 8 at 512", 8, 512),
    ("decode batch 32 at 512", 32, 512),
    ("decode batch 128 at 512", 128, 512),
    ("decode batch 1 at 8192", 1, 8192),
    ("prefill 512", 1, 512),
    ("prefill 2048", 1, 2048),
    ("prefill 8192", 1, 8192),
]


class Recorder(FakeRunner):
    """Notes every step. On a GPU it has two launches open, and checks what follows what."""

    def __init__(self, config: EngineConfig) -> None:
        on_gpu = config.device != "cpu"
        super().__init__(FakeConfig(depth=2 if on_gpu else 1, num_blocks=5000 if on_gpu else 400))
        self.asked = config
        self.steps: list[list[Row]] = []
        self.open = 0
        self.open_at_collect: list[int] = []
        MADE.append(self)

    def launch(self, rows: list[Row], sink: KVSink | None) -> None:
        self.steps.append(list(rows))
        self.open += 1
        super().launch(rows, sink)

    def collect(self) -> list[object]:
        self.open_at_collect.append(self.open)
        self.open -= 1
        return super().collect()


MADE: list[Recorder] = []


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setattr(bench_engine, "load", lambda target: Recorder)
    MADE.clear()
    return Recorder


def run(device: str = "cpu", *, as_json: bool = True) -> Recorder:
    assert bench_engine.run("tiny", "bfloat16", device, "dummy", 1, as_json) == 0
    [made] = MADE
    return made


def shapes(rows: list[Row]) -> list[tuple[int, int, bool]]:
    return [(row.start, len(row.tokens), row.sample is not None) for row in rows]


@pytest.mark.parametrize(
    ("device", "cases"), [("cpu", CPU_CASES), ("cuda:0", CUDA_CASES)], ids=["cpu", "cuda"]
)
def test_it_prints_one_object_a_line(
    recorder: type[Recorder],
    capsys: pytest.CaptureFixture[str],
    device: str,
    cases: list[tuple[str, int, int]],
) -> None:
    run(device)
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["case"], line["batch"], line["tokens"]) for line in lines] == cases
    for line in lines:
        assert 0 < line["p10_ms"] <= line["median_ms"] <= line["p90_ms"]
        assert (line["threads"], line["dtype"], line["device"]) == (1, "bfloat16", device)
        assert line["torch"].startswith("2.")
        tokens = line["batch"] if line["case"].startswith("decode") else line["tokens"]
        assert line["tokens_per_s"] == pytest.approx(tokens / line["median_ms"] * 1e3, rel=0.2)
    assert "measuring prefill 2048" in err


def test_it_prints_a_table_for_people(
    recorder: type[Recorder], capsys: pytest.CaptureFixture[str]
) -> None:
    run(as_json=False)
    out = capsys.readouterr().out
    assert [line.split("  ")[0] for line in out.splitlines()] == [case for case, _, _ in CPU_CASES]


def test_prompts_come_in_chunks_and_decodes_in_batches(recorder: type[Recorder]) -> None:
    made = run()
    assert (made.asked.model, made.asked.load_format) == ("tiny", "dummy")
    assert shapes(made.steps[0]) == [(0, 64, True)]
    assert [shapes(rows) for rows in made.steps[1:65]] == [
        [(64 + step, 1, True)] for step in range(64)
    ]
    decode_8 = [shapes(rows) for rows in made.steps if len(rows) == 8]
    assert decode_8 == [[(64 + step, 1, True)] * 8 for step in range(64)]
    chunks = [(start, 512, start == 1536) for start in range(0, 2048, 512)]
    assert [shape for rows in made.steps[-4:] for shape in shapes(rows)] == chunks
    assert set(made.open_at_collect) == {1}


def test_a_gpus_decode_is_one_step_ahead_and_follows_tokens_not_known_yet(
    recorder: type[Recorder],
) -> None:
    made = run("cuda")
    sizes = made.asked.scheduler
    assert (made.asked.device, made.asked.kv_cache_memory_bytes) == ("cuda:0", None)
    assert (sizes.max_num_seqs, sizes.max_num_batched_tokens) == (256, 8192)
    batch = [rows for rows in made.steps if len(rows) == 32]
    assert [row.follows for row in batch[0]] == [None] * 32
    for rows in batch[1:]:
        assert [row.follows for row in rows] == list(range(32))
        assert all(row.tokens == [PENDING] for row in rows)
    assert made.open_at_collect[1:64] == [2] * 63
    assert shapes(made.steps[-1]) == [(0, 8192, True)]


def test_a_sequence_has_one_block_table_for_all_its_rows(recorder: type[Recorder]) -> None:
    tables: dict[str, int] = {}
    for rows in run().steps:
        for row in rows:
            assert tables.setdefault(row.request_id, id(row.blocks)) == id(row.blocks)


def test_a_pool_too_small_for_a_case_is_said(
    recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = FakeRunner(FakeConfig(num_blocks=9))
    monkeypatch.setattr(bench_engine, "load", lambda target: lambda config: small)
    with pytest.raises(ConfigError, match="decode batch 8 at 64 needs 64 KV blocks and there are"):
        bench_engine.run("tiny", "bfloat16", "cpu", "dummy", 1, True)
