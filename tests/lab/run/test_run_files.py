"""What a run sends of a user's own file."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from lab.run.tiny_study import url_study
from splitserve.errors import ConfigError
from splitserve.lab.load.corpus.synthetic import Vocabulary
from splitserve.lab.plan.phases import Run, runs_of
from splitserve.lab.plan.resolve import read_plan
from splitserve.lab.plan.study import Study
from splitserve.lab.run.prompts import Source
from splitserve.lab.run.timing import OpenLoad, load_of


def target(folder: Path) -> tuple[Study, Run]:
    plan = read_plan(url_study(folder, "http://127.0.0.1:1", "http://127.0.0.1:2"))
    run = next(run for run in runs_of(plan) if run.series == "target")
    return plan.study, replace(run, cell=replace(run.cell, prompt="all", output="all"))


def reading(study: Study, source: str, file: Path, **settings: object) -> Source:
    corpus = msgspec.structs.replace(
        study.workload.corpus, source=source, prompt_tokens={}, output_tokens={}
    )
    workload = msgspec.structs.replace(study.workload, corpus=corpus)
    study = msgspec.structs.replace(study, workload=workload, **settings)
    return Source(study, file, Vocabulary(1500), 4096)


def trace(folder: Path, rows: int) -> Path:
    file = folder / "trace.csv"
    lines = [f"{at},{at + 10},4" for at in range(rows)]
    file.write_text("\n".join(("Timestamp,Request tokens,Response tokens", *lines)))
    return file


def sent(source: Source, run: Run, rate_per_s: float) -> tuple[list[int], list[int]]:
    """Rows of the trace in warm-up and in the window: row 0 has 10 tokens, row 1 has 11."""
    load = load_of(run, rate_per_s, source)
    assert isinstance(load, OpenLoad)
    rows: dict[bool, list[int]] = {True: [], False: []}
    for due in load.schedule:
        rows[due.warmup] += [len(turn.prompt) - 10 for turn in due.turns]
    return rows[True], rows[False]


def test_a_run_measures_a_slice_of_a_trace_and_warms_up_on_what_comes_before_it(
    tmp_path: Path,
) -> None:
    study, run = target(tmp_path)
    source = reading(study, "burstgpt_csv", trace(tmp_path, 200))
    warmup, measured = sent(source, replace(run, shard=2), run.cell.rate_per_s or 0.0)
    begin = measured[0]
    assert measured == list(range(begin, begin + run.requests))
    assert warmup == list(range(begin - len(warmup), begin))


def test_a_long_warm_up_takes_nothing_of_what_is_measured(tmp_path: Path) -> None:
    study, run = target(tmp_path)
    longer = msgspec.structs.replace(study.metrics, warmup_min_s=10.0)
    source = reading(study, "burstgpt_csv", trace(tmp_path, 200), metrics=longer)
    warmup, measured = sent(source, run, 5.0)
    assert len(warmup) > 2 * study.workload.corpus.warmup_requests
    assert not set(warmup) & set(measured)


def test_a_file_that_is_too_short_for_warm_up_and_window_is_refused(tmp_path: Path) -> None:
    study, run = target(tmp_path)
    few = run.requests + study.workload.corpus.warmup_requests
    longer = msgspec.structs.replace(study.metrics, warmup_min_s=10.0)
    source = reading(study, "burstgpt_csv", trace(tmp_path, few), metrics=longer)
    with pytest.raises(ConfigError, match="a run takes up to"):
        sent(source, run, 5.0)
    short = tmp_path / "short"
    short.mkdir()
    with pytest.raises(ConfigError, match=f"has {few - 1} requests"):
        sent(reading(study, "burstgpt_csv", trace(short, few - 1)), run, 5.0)


def test_conversations_are_sent_whole(tmp_path: Path) -> None:
    study, run = target(tmp_path)
    said = [{"role": who, "content": "a"} for who in ("user", "assistant", "user")]
    file = tmp_path / "talks.jsonl"
    file.write_text("\n".join([json.dumps({"messages": said})] * 100))
    load = load_of(run, run.cell.rate_per_s, reading(study, "messages_jsonl", file))
    assert isinstance(load, OpenLoad)
    assert {len(due.turns) for due in load.schedule} == {2}
    sessions = [due.turns[0].session for due in load.schedule]
    assert len(set(sessions)) == len(sessions)
