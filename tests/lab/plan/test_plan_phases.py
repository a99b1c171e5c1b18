"""The list of runs: phases in order, pairs interleaved, requests shared within a pair."""

from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_plan import CHUNKED, Data, data, plan_of, running, with_arm

from splitserve.errors import ConfigError
from splitserve.lab.plan.faults import HELD_BY_POOL, USERS_OF_POOL, why_not_made
from splitserve.lab.plan.phases import (
    CAPACITY_RUNGS,
    FUNCTION_REQUESTS,
    Run,
    at_rate,
    check_budget,
    runs_of,
    target_cell,
)
from splitserve.lab.plan.study import FAULTS

GOODPUT = ("goodput", "goodput")
AXES = [
    {"name": "prompt_len", "values": ["S", "M", "L"]},
    {"name": "output_cap", "values": ["S", "L"]},
    {"name": "concurrency", "values": [1, 8]},
    {"name": "pd_ratio", "values": ["1:1"], "total": 2},
]


def runs(made: Data, profile: str | None = None) -> tuple[Run, ...]:
    return runs_of(plan_of(made, profile=profile))


def whole() -> Data:
    further = {"goodput_runs": 2, "faults": ["kill_prefill"]}
    return with_arm(CHUNKED, axes=AXES, further=further, slo__attainment=0.9)


def of_series(all_runs: tuple[Run, ...], phase: str, series: str) -> list[Run]:
    return [run for run in all_runs if (run.phase, run.series) == (phase, series)]


def test_phases_come_in_the_order_of_the_brief() -> None:
    phases = [phase for phase, _ in groupby(runs(whole()), lambda run: run.phase)]
    assert phases == [
        "baseline", "rows", "function", "target", "prompt_len", "output_cap", "concurrency",
        "pd_ratio", "goodput", "faults", "rollback",
    ]  # fmt: skip


def test_nothing_is_timed_on_the_split_before_it_has_been_shown_to_work() -> None:
    made = runs(whole())
    first = next(run for run in made if run.arm == "split")
    assert first.phase == "function"
    check = of_series(made, "function", "function")
    assert [run.cell.concurrency for run in check] == [1, 2]
    assert sum(run.requests for run in check) == 2 * FUNCTION_REQUESTS >= 30
    assert {(run.cell.prompt, run.cell.output) for run in check} == {("S", "S")}


def test_numbers_count_from_one() -> None:
    made = runs(whole())
    assert [run.number for run in made] == list(range(1, len(made) + 1))


def test_the_target_has_the_pairs_that_were_asked_for() -> None:
    made = of_series(runs(data(stats={"pairs": 5})), "target", "target")
    assert len(made) == 10
    for pair in range(5):
        one, two = made[2 * pair : 2 * pair + 2]
        assert {one.arm, two.arm} == {"one", "split"}
        assert (one.pair, two.pair) == (pair, pair)
        assert (one.position, two.position) == (0, 1)
        assert (one.shard, one.cell, one.requests) == (two.shard, two.cell, two.requests)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 9))
def test_pairs_are_blocks_of_abba_or_baab(seed: int, pairs: int) -> None:
    made = of_series(runs(data(stats={"order_seed": seed, "pairs": pairs})), "target", "target")
    sides = "".join(run.side for run in made)
    blocks = [sides[i : i + 4] for i in range(0, len(sides), 4)]
    assert all(full.startswith(block) for block in blocks for full in [_full(block)])
    assert sides.count("A") == sides.count("B") == pairs


def _full(block: str) -> str:
    return "ABBA" if block.startswith("A") else "BAAB"


def test_both_orders_occur_and_the_seed_decides() -> None:
    orders = {
        "".join(
            run.side for run in of_series(runs(data(stats={"order_seed": i})), "target", "target")
        )
        for i in range(6)
    }
    assert len(orders) > 1
    assert runs(data()) == runs(data())


def test_a_series_added_later_moves_no_other() -> None:
    plain = of_series(runs(data()), "target", "target")
    more = of_series(runs(whole()), "target", "target")
    assert [run.side for run in plain] == [run.side for run in more]


def test_the_single_arm_is_paired_with_itself_on_requests_that_the_verdict_does_not_see() -> None:
    made = runs(whole())
    controls = of_series(made, "baseline", "A/A")
    assert len(controls) == 8
    assert {run.arm for run in controls} == {"one"}
    assert {run.side for run in controls} == {"A", "B"}
    used = {run.shard for run in made if run.phase in ("target", "rows")}
    assert not used & {run.shard for run in controls}


def test_every_chunk_size_is_paired_with_its_base_on_the_requests_of_the_target() -> None:
    made = runs(whole())
    target = {run.shard for run in of_series(made, "target", "target")}
    for label in ("chunks@64", "chunks@128"):
        series = of_series(made, "rows", label)
        assert {run.arm for run in series} == {"one", label}
        assert {run.shard for run in series} <= target


def test_an_axis_changes_its_own_variable_and_no_other() -> None:
    made = runs(whole())
    target = target_cell(plan_of(whole()).study)
    prompts = [run.cell for run in made if run.phase == "prompt_len"]
    assert {cell.prompt for cell in prompts} == {"S", "M", "L"}
    assert {(cell.output, cell.rate_per_s) for cell in prompts} == {("S", target.rate_per_s)}
    outputs = [run.cell for run in made if run.phase == "output_cap"]
    assert {(cell.prompt, cell.output) for cell in outputs} == {("L", "S"), ("L", "L")}
    closed = [run.cell for run in made if run.phase == "concurrency"]
    assert {(cell.prompt, cell.output, cell.concurrency) for cell in closed} == {
        ("L", "S", 1),
        ("L", "S", 8),
    }
    ratios = [run for run in made if run.phase == "pd_ratio"]
    assert {run.arm for run in ratios} == {"one", "split@1:1"}
    assert {run.cell for run in ratios} == {target}


def test_the_capacity_is_looked_for_where_loads_are_shares_of_it() -> None:
    target = {
        "prompt": "L", "output": "S", "load": 0.5, "load_unit": "of_capacity",
        "capacity_guess_per_s": 4.0,
    }  # fmt: skip
    made = runs(data(target=target))
    rungs = of_series(made, "baseline", "capacity")
    assert len(rungs) == CAPACITY_RUNGS
    rates = [run.cell.rate_per_s or 0.0 for run in rungs]
    assert rates == sorted(rates)
    assert rates[0] < 4.0 < rates[-1]
    assert of_series(made, "target", "target")[0].cell.rate_per_s == 2.0
    assert of_series(runs(data()), "baseline", "capacity") == []


def test_several_single_arms_compete_on_requests_that_decide_nothing() -> None:
    other = {"name": "big", "family": "single", "topology": "../topologies/colocated.toml"}
    made = runs(with_arm(other))
    tuning = of_series(made, "baseline", "one or big")
    assert {run.arm for run in tuning} == {"one", "big"}
    seen = {run.shard for run in made if run.phase == "target" or run.series == "A/A"}
    assert not seen & {run.shard for run in tuning}


def test_the_way_back_is_single_split_single() -> None:
    made = [run.arm for run in runs(data()) if run.phase == "rollback"]
    assert made == ["one", "split", "one"]
    assert not [run for run in runs(data(rollback=None)) if run.phase == "rollback"]


def test_smoke_is_shorter_and_still_paired() -> None:
    full, smoke = runs(whole()), runs(whole(), "smoke")
    assert len(of_series(smoke, "target", "target")) == 6
    assert {run.phase for run in smoke} == {"baseline", "function", "target", "rollback"}
    assert sum(run.seconds for run in smoke) < sum(run.seconds for run in full) / 5


def test_starting_an_arm_is_counted_where_another_ran_before() -> None:
    made = of_series(runs(data(budget__start_s=1000.0)), "target", "target")
    for before, run in pairwise(made):
        assert (run.seconds > 1000) == (run.arm != before.arm)


def test_an_arm_that_runs_already_is_not_started() -> None:
    made = of_series(runs(running(budget__start_s=1000.0)), "target", "target")
    assert all(run.seconds < 1000 for run in made)


def test_a_run_lasts_as_long_as_its_requests_take_to_come() -> None:
    slow, fast = runs(data(target__load=1.0)), runs(data(target__load=2.0))
    slowest = of_series(slow, "target", "target")[0].seconds
    assert slowest - of_series(fast, "target", "target")[0].seconds == pytest.approx(100, abs=1)


def test_a_plan_longer_than_its_budget_is_refused() -> None:
    plan = plan_of(data(budget__seconds=600))
    with pytest.raises(ConfigError, match=r"^budget.seconds: is 600, and the \d+ runs take about"):
        check_budget(plan, runs_of(plan))
    enough = plan_of(data())
    check_budget(enough, runs_of(enough))


def test_each_arm_searches_by_steps_that_count_alone_and_share_their_requests() -> None:
    made = of_series(runs(data(further={"goodput_runs": 3}, slo__attainment=0.9)), *GOODPUT)
    assert [run.pair for run in made] == [None] * 6
    for arm, side in (("one", "A"), ("split", "B")):
        steps = [run for run in made if run.arm == arm]
        assert [(run.position, run.shard, run.side) for run in steps] == [
            (0, 0, side),
            (1, 1, side),
            (2, 2, side),
        ]
        assert {run.cell.rate_per_s for run in steps} == {2.0}


def test_a_closed_loop_has_a_search_over_rates_all_the_same() -> None:
    closed = {"process": "closed", "concurrency": 4}
    further = {"goodput_runs": 1}
    made = data(further=further, slo__attainment=0.9, workload__arrivals=closed)
    assert {run.cell.rate_per_s for run in of_series(runs(made), *GOODPUT)} == {2.0}


def test_a_search_that_could_show_no_rate_is_refused_with_what_it_needs() -> None:
    further = {"goodput_runs": 2}
    with pytest.raises(ConfigError, match=r"^further\.goodput_runs: .* takes 299 requests a run"):
        runs(data(further=further, workload__corpus__requests=298))
    assert of_series(runs(data(further=further, workload__corpus__requests=299)), *GOODPUT)
    assert runs(data(workload__corpus__requests=298))


def test_a_search_needs_one_rate() -> None:
    with pytest.raises(ConfigError, match=r"^further\.goodput_runs: a search looks for one rate"):
        runs(
            data(
                further={"goodput_runs": 2},
                slo__attainment=0.9,
                workload__arrivals={"process": "ramp"},
            )
        )


def test_a_step_at_half_the_rate_takes_twice_the_time_of_its_requests() -> None:
    made = data(further={"goodput_runs": 1}, slo__attainment=0.9, metrics={"warmup_min_s": 0.0})
    step = of_series(runs(made), *GOODPUT)[0]
    slower = at_rate(plan_of(made).study, step, 1.0)
    # 200 requests and 10 of warm-up, at 2 a second and at 1.
    assert slower.seconds - step.seconds == pytest.approx(105, abs=0.2)
    assert slower.cell.rate_per_s == 1.0


def test_what_had_a_fault_is_started_anew_for_whatever_comes_next() -> None:
    made = runs(data(further={"faults": ["kill_prefill", "kill_decode"]}, budget__start_s=1000.0))
    first, second = (run for run in made if run.phase == "faults")
    # Its own start, and that of the worker which is killed.
    assert first.seconds > 2000
    assert second.seconds > 2000
    back = next(run for run in made if run.phase == "rollback")
    assert back.seconds > 1000


def test_a_fault_that_cannot_be_made_takes_no_time_and_says_why() -> None:
    plan = plan_of(data(further={"faults": ["slow_link", "kill_decode"]}))
    slow, kill = (run for run in runs_of(plan) if run.phase == "faults")
    assert slow.seconds == 0 < kill.seconds
    assert "no link to slow" in (why_not_made(plan, "slow_link") or "")
    assert why_not_made(plan, "kill_decode") is None


def test_faults_of_a_running_url_are_not_the_labs_to_make() -> None:
    plan = plan_of(running(further={"faults": list(FAULTS)}))
    assert all("did not start it" in (why_not_made(plan, fault) or "") for fault in FAULTS)


def test_a_full_pool_has_an_arm_of_its_own_and_more_users_than_fit() -> None:
    made = runs(data(further={"faults": ["kv_pool_full"]}))
    (fault,) = (run for run in made if run.phase == "faults")
    assert fault.arm == "split@kv_pool_full"
    assert fault.cell.concurrency == USERS_OF_POOL > HELD_BY_POOL
    assert "split@kv_pool_full" not in plan_of(data()).variants
