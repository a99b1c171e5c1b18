"""STUDY.toml: what is accepted, and what the errors say."""

from pathlib import Path
from typing import Any

import pytest
from made_plan import CHUNKED, STUDIES, data, plan_of, running, with_arm

from splitserve.errors import ConfigError
from splitserve.lab.plan.phases import check_budget, runs_of
from splitserve.lab.plan.read import parse_study, read_study
from splitserve.lab.plan.resolve import read_plan
from splitserve.lab.plan.study import AXES, OUT_OF_SCOPE


@pytest.mark.parametrize("profile", ["full", "smoke"])
@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_studies_that_we_ship_are_valid_and_fit_their_budget(path: Path, profile: str) -> None:
    plan = read_plan(path, profile)
    runs = runs_of(plan)
    check_budget(plan, runs)
    assert {run.arm for run in runs} >= {plan.baseline.label, plan.split.label}
    assert plan.study.may_adopt == (profile == "full")


def test_both_native_studies_and_one_for_urls_are_shipped() -> None:
    assert {path.stem for path in STUDIES.glob("*.toml")} >= {"long-prompts", "short-light", "urls"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"slo": None}, "slo: missing; it needs ttft_ms and itl_ms"),
        ({"slo__itl_ms": None}, "slo: needs the key `itl_ms`"),
        ({"slo__itl_m": 3}, "slo.itl_m: unknown key; did you mean 'itl_ms'?"),
        ({"slo__ttft_ms": 0}, "slo.ttft_ms must be positive (got 0.0)"),
        ({"slo__ttft_ms": float("nan")}, "slo.ttft_ms: nan is no number"),
        ({"arms__0__topology": "a\nb"}, "'arms[0].topology': 'a\\nb' has a line end"),
        ({"target__load": 1e-9}, "target.load must be from 0.001"),
        ({"stats__order_seed": 10**20}, "stats.order_seed: 100000000000000000000 is larger than"),
        ({"slo__attainment": 1.0}, "slo.attainment must be between 0 and 1"),
        ({"budget__seconds": "long"}, "budget.seconds: Expected `float`, got `str`"),
        ({"study__question": "itl"}, "study.question must be one of tail_itl, ttft, both"),
        ({"study__id": " "}, "study.id must not be empty"),
        (
            {"study__out_of_scope": list(OUT_OF_SCOPE[1:])},
            f"study.out_of_scope: no study speaks of {OUT_OF_SCOPE[0]}",
        ),
        ({"target__prompt": "XL"}, "target.prompt must be one of S, M, L (got 'XL')"),
        ({"target__load_unit": "of_capacity", "target__load": 1.2}, "target.load must be below 1"),
        (
            {"target__load_unit": "of_capacity", "target__load": 0.7},
            "target.capacity_guess_per_s: missing",
        ),
        (
            {"workload__corpus__file": "x.csv"},
            "workload.corpus.file is not needed for source 'synthetic'",
        ),
        (
            {"workload__corpus__source": "azure_csv"},
            "workload.corpus.file is needed for source 'azure_csv'",
        ),
        (
            {"workload__corpus__shared_prefix": 0.5},
            "workload.corpus.prefix_groups goes with shared_prefix",
        ),
        (
            {"workload__corpus__prompt_tokens": {"L": 8, "M": 8}},
            "workload.corpus.prompt_tokens has two names for one length",
        ),
        (
            {"workload__arrivals": {"process": "trace"}},
            "workload.arrivals.process: source 'synthetic' does not say when",
        ),
        (
            {"workload__arrivals": {"process": "closed"}},
            "workload.arrivals.concurrency is needed for the process closed",
        ),
        ({"workload__sessions": {"turns": 1}}, "workload.sessions.turns must be above 1"),
        ({"metrics": {"quantiles": [0.9, 0.5]}}, "metrics.quantiles must rise"),
        ({"metrics": {"decided_at": 0.75}}, "metrics.decided_at must be one of metrics.quantiles"),
        (
            {"metrics": {"quantile_method": "linear"}},
            "metrics.quantile_method must be one of inverse_cdf",
        ),
        ({"stats__pairs": 2}, "stats.pairs must be from 3 to 1000; runs are the unit"),
        ({"stats__aa_pairs": 1}, "stats.aa_pairs must be from 2 to 1000"),
        (
            {"routing__client_retries": 1},
            "routing.client_retries must be 0; a retry of the client would hide an error",
        ),
        ({"further__faults": ["rain"]}, "further.faults[0] must be one of"),
        ({"rollback__target": "split"}, "rollback.target must be one of one (got 'split')"),
        ({"model__max_model_len": 1000}, "the longest prompt and answer are 1152 tokens"),
        ({"allowances__ttft_ratio": 0.9}, "allowances.ttft_ratio must be 1 or more"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_a_wrong_value_is_refused_by_key_cause_and_cure(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_study(data(**changes))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_check_without_a_time_zone_is_refused() -> None:
    made = data()
    made["study"]["checked_at"] = made["study"]["checked_at"].replace(tzinfo=None)
    with pytest.raises(ConfigError, match=r"study.checked_at: a time without a zone"):
        parse_study(made)


@pytest.mark.parametrize("key", ["corpus", "temperature", "max_tokens", "sampling"])
def test_an_arm_cannot_have_requests_of_its_own(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^arms\[1\].{key}: every arm gets the same requests"):
        parse_study(data(**{f"arms__1__{key}": 1}))


def test_a_throughput_question_is_sent_elsewhere_unless_insisted_on() -> None:
    with pytest.raises(ConfigError, match=r"^study.question: .* first compare queue limits"):
        parse_study(data(study__question="throughput"))
    study = parse_study(data(study__question="throughput", study__secondary=True))
    assert not study.may_adopt


@pytest.mark.parametrize(
    "changes",
    [
        {"study__verification": "desk"},
        {"study__verification": "mixed"},
        {"study__profile": "smoke"},
        {"study__question": "throughput", "study__secondary": True},
        {"comparison__kind": "added_capacity"},
        {"rollback": None},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_can_never_adopt_says_so(changes: dict[str, Any]) -> None:
    assert parse_study(data()).may_adopt
    assert not parse_study(data(**changes)).may_adopt
    with pytest.raises(ConfigError, match=r"^study.adopt: ADOPT cannot be the verdict"):
        parse_study(data(**changes, study__adopt=True))


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        (
            [("concurrency", [1]), ("prompt_len", ["S"])],
            r"axes\[1\].name: prompt_len comes before concurrency; the order is",
        ),
        (
            [("prompt_len", ["S"]), ("prompt_len", ["L"])],
            r"axes\[1\].name: prompt_len is there twice",
        ),
        (
            [(["prompt_len", "output_cap"], ["S"])],
            r"axes\[0\].name: one variable is changed at a time",
        ),
        ([("prompt_len", ["S", "S"])], r"axes\[0\].values must be different"),
        ([("prompt_len", ["XS"])], r"axes\[0\].values\[0\] must be one of S, M, L"),
        ([("output_cap", [32])], r"axes\[0\].values\[0\] must be text"),
        ([("concurrency", ["8"])], r"axes\[0\].values\[0\] must be a number of requests"),
        ([("pd_ratio", ["1:3"])], r"axes\[0\].total: missing"),
        ([("temperature", [1])], r"axes\[0\].name must be one of prompt_len"),
    ],
    ids=[
        "reordered",
        "twice",
        "two-at-once",
        "repeated",
        "unknown",
        "number",
        "text",
        "no-total",
        "foreign",
    ],
)
def test_axes_are_one_variable_each_and_in_order(axes: list[tuple[Any, Any]], says: str) -> None:
    made = data(axes=[{"name": name, "values": values} for name, values in axes])
    with pytest.raises(ConfigError, match=says):
        parse_study(made)


def test_any_part_of_the_axes_is_allowed_in_their_order() -> None:
    axes = [
        {"name": "output_cap", "values": ["S", "L"]},
        {"name": "pd_ratio", "values": ["1:3", "2:2"], "total": 4},
    ]
    study = parse_study(data(axes=axes))
    assert [axis.name for axis in study.axes] == [AXES[1], AXES[3]]


def test_ratios_that_do_not_add_up_are_refused() -> None:
    axes = [{"name": "pd_ratio", "values": ["1:3", "1:1"], "total": 4}]
    with pytest.raises(ConfigError, match=r"axes\[0\].values\[1\] must add up to 4"):
        parse_study(data(axes=axes))


def test_a_running_split_cannot_be_laid_out_anew() -> None:
    axes = [{"name": "pd_ratio", "values": ["1:3"], "total": 4}]
    with pytest.raises(ConfigError, match=r"^axes\[0\]: split runs already"):
        parse_study(running(axes=axes))


@pytest.mark.parametrize(
    ("requests", "quantile", "needed"),
    [(99, 0.9, 100), (199, 0.95, 200), (999, 0.99, 1000), (19, 0.5, 20)],
)
def test_a_quantile_that_the_sample_cannot_carry_is_refused(
    requests: int, quantile: float, needed: int
) -> None:
    changes: dict[str, Any] = {
        "metrics": {"quantiles": [quantile], "decided_at": quantile},
        "stats__pairs": 100,
    }
    parse_study(data(**changes, workload__corpus__requests=needed))
    with pytest.raises(ConfigError, match=rf"quantile {quantile} needs {needed} requests a run"):
        parse_study(data(**changes, workload__corpus__requests=requests))


def test_an_allowance_for_errors_that_the_sample_cannot_show_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^allowances.error_pp: .* takes 2995 requests"):
        parse_study(data(allowances={"error_pp": 0.1}))


def test_smoke_is_cut_down_to_what_it_carries_and_never_adopts() -> None:
    made = with_arm(CHUNKED, axes=[{"name": "prompt_len", "values": ["S", "L"]}])
    study = parse_study(made, "smoke")
    assert study.metrics.quantiles == (0.5,)
    assert study.metrics.decided_at == 0.5
    assert (study.stats.pairs, study.workload.corpus.requests) == (3, 20)
    assert study.axes == ()
    assert [arm.name for arm in study.arms] == ["one", "split"]
    assert not study.may_adopt


def test_smoke_asked_for_in_the_file_is_the_same_as_from_outside() -> None:
    in_file, outside = parse_study(data(study__profile="smoke")), parse_study(data(), "smoke")
    assert in_file == outside


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope.toml: No such file"):
        read_study(tmp_path / "nope.toml")
    (tmp_path / "bad.toml").write_text("[study")
    with pytest.raises(ConfigError, match=r"bad.toml: not a TOML file"):
        read_study(tmp_path / "bad.toml")


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ConfigError, match="--profile must be one of full, smoke"):
        parse_study(data(), "quick")


def test_a_desk_study_has_no_runs() -> None:
    assert runs_of(plan_of(data(study__verification="desk"))) == ()
