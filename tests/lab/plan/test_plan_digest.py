"""The plan's digest: the same for equal plans, another for any other value."""

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_plan import CHUNKED, STUDIES, TEXT, Data, data, plan_of, put

from splitserve.errors import ConfigError
from splitserve.lab.plan.resolve import read_plan

REFERENCE = plan_of(data()).digest

OTHER: dict[str, object] = {
    "study__id": "u",
    "study__question": "ttft",
    "study__source": "another page",
    "study__verification": "mixed",
    "study__profile": "smoke",
    "study__third_party_connector": True,
    "model__revision": "abc",
    "target__prompt": "M",
    "target__load": 2.5,
    "slo__ttft_ms": 1001,
    "slo__attainment": 0.98,
    "arms__0__name": "uno",
    "arms__0__topology": "../topologies/colocated.toml",
    "workload__corpus__seed": 1,
    "workload__corpus__requests": 201,
    "workload__corpus__prompt_tokens__S": 65,
    "workload__arrivals__cv": 1.1,
    "workload__sampling__temperature": 0.1,
    "axes": [{"name": "prompt_len", "values": ["S", "L"]}],
    "metrics__quantiles": [0.5, 0.95],
    "stats__pairs": 9,
    "stats__order_seed": 1,
    "stats__sesoi__ttft_ratio": 0.8,
    "allowances__error_pp": 0.6,
    "routing__gap_timeout_s": 21,
    "state__cache_reset": "restart",
    "rollback__rto_s": 601,
    "further__goodput_runs": 1,
    "budget__seconds": 100001,
}


def changed(*paths: str) -> Data:
    made = data()
    for path in paths:
        put(made, path.split("__"), OTHER[path])
    if "arms__0__name" in paths:
        put(made, ["rollback", "target"], "uno")
    return made


@pytest.mark.parametrize("path", sorted(OTHER))
def test_any_other_value_is_another_plan(path: str) -> None:
    assert plan_of(changed(path)).digest != REFERENCE


@settings(max_examples=30, deadline=None)
@given(st.sets(st.sampled_from(sorted(OTHER))), st.sets(st.sampled_from(sorted(OTHER))))
def test_digests_are_equal_exactly_when_values_are(one: set[str], other: set[str]) -> None:
    # Smoke cuts away what some of these change.
    one, other = one - {"study__profile"}, other - {"study__profile"}
    left, right = plan_of(changed(*sorted(one))), plan_of(changed(*sorted(other)))
    assert (left.digest == right.digest) == (one == other)


def shuffled(value: Any, pick: Any) -> Any:
    if isinstance(value, dict):
        keys = pick(sorted(value))
        return {key: shuffled(value[key], pick) for key in keys}
    if isinstance(value, list):
        return [shuffled(inner, pick) for inner in value]
    return copy.deepcopy(value)


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing(random: Any) -> None:
    made = shuffled(data(), lambda keys: random.sample(keys, len(keys)))
    assert plan_of(made).digest == REFERENCE


def test_comments_and_spaces_change_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "studies"
    folder.mkdir()
    (tmp_path / "topologies").mkdir()
    for name in ("2colocated.toml", "1p1d.toml"):
        text = (STUDIES.parent / "topologies" / name).read_text()
        plain = "\n".join(line.split("#")[0] for line in text.splitlines())
        (tmp_path / "topologies" / name).write_text(plain)
    spaced = TEXT.replace(" = ", "   =   ").replace("[slo]", "# targets\n\n[slo]  # in ms")
    (folder / "s.toml").write_text(spaced)
    assert read_plan(folder / "s.toml").digest == REFERENCE


def test_defaults_written_out_and_whole_numbers_for_fractions_are_the_same_plan() -> None:
    made = data(stats={"pairs": 8}, target__load=2, slo__ttft_ms=1000.0)
    assert plan_of(made).digest == REFERENCE


def test_arms_in_another_order_are_another_plan() -> None:
    made = tomllib.loads(TEXT)
    made["arms"].reverse()
    assert plan_of(made).digest != REFERENCE


def test_a_topology_changed_in_place_is_another_plan(tmp_path: Path) -> None:
    text = (STUDIES.parent / "topologies" / "1p1d.toml").read_text()
    (tmp_path / "split.toml").write_text(text)
    single = (STUDIES.parent / "topologies" / "2colocated.toml").read_text()
    (tmp_path / "one.toml").write_text(single)
    made = data(arms__0__topology="one.toml", arms__1__topology="split.toml")
    before = plan_of(made, tmp_path).digest
    (tmp_path / "split.toml").write_text(text.replace("512MiB", "513MiB"))
    assert plan_of(made, tmp_path).digest != before


def corpus(folder: Path, rows: int) -> Data:
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [f"2023-11-16 18:15:{i % 60:02}.0000000,{i + 1},7" for i in range(rows)]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n\n")
    return data(
        arms__0__topology=str(STUDIES.parent / "topologies" / "2colocated.toml"),
        arms__1__topology=str(STUDIES.parent / "topologies" / "1p1d.toml"),
        workload__corpus__source="azure_csv",
        workload__corpus__file="trace.csv",
        target__prompt="all",
    )


def test_the_bytes_of_the_corpus_are_part_of_the_plan(tmp_path: Path) -> None:
    made = corpus(tmp_path, 250)
    before = plan_of(made, tmp_path)
    assert before.corpus is not None
    assert before.corpus.lines == 251
    with (tmp_path / "trace.csv").open("a") as file:
        file.write("2023-11-16 18:20:00.0000000,1,1\n")
    assert plan_of(made, tmp_path).digest != before.digest


def test_a_corpus_with_fewer_rows_than_a_run_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trace.csv has 201 lines, and one run takes 210"):
        plan_of(corpus(tmp_path, 200), tmp_path)


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path) -> None:
    made = corpus(tmp_path, 250)
    (tmp_path / "trace.csv").unlink()
    with pytest.raises(ConfigError, match=r"^workload.corpus.file: .*trace.csv: No such file"):
        plan_of(made, tmp_path)


def test_rows_of_an_arm_are_part_of_the_plan() -> None:
    one, other = data(), data()
    one["arms"].append(CHUNKED)
    other["arms"].append({**CHUNKED, "chunk_tokens": [64]})
    digests = {plan_of(made).digest for made in (one, other)}
    assert len(digests | {REFERENCE}) == 3
