"""The lab's error rates, at reduced size, by the code that `make bench` runs at full size."""

import math

import pytest

from splitserve.bench import lab
from splitserve.bench.lab import BUSY, POWER, WRONG, Reading, at_least, at_most, error_rates, near
from splitserve.cli import bench_lab, lab_extra
from splitserve.cli.bench_lab import line_of
from splitserve.cli.main import main

STUDIES = 50


def slack(share: float) -> float:
    """Three deviations of a share of STUDIES."""
    return 3 * math.sqrt(share * (1 - share) / STUDIES)


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    return {reading.what: reading.found for reading in error_rates(STUDIES, seed=5)}


def test_equal_arms_are_hardly_ever_adopted_or_found_better(found: dict[str, float]) -> None:
    assert found["equal arms: adopted"] <= WRONG
    assert found["equal arms, noisy runs: adopted"] <= WRONG
    assert found["equal arms: a latency found better"] <= WRONG + slack(WRONG)


def test_the_effect_is_adopted_and_the_smallest_one_found(found: dict[str, float]) -> None:
    assert found["tail ITL times 0.7: adopted"] >= POWER - slack(POWER)
    assert found["tail ITL times 0.8: found better"] >= POWER


def test_every_interval_holds_the_truth_as_often_as_it_says(found: dict[str, float]) -> None:
    shares = {what: share for what, share in found.items() if "holds the truth" in what}
    assert len(shares) == 5
    assert min(shares.values()) >= 0.95 - slack(0.95)


def test_a_limit_is_met_when_equal() -> None:
    met = [at_most("a", 0.05, 0.05), at_least("b", 0.8, 0.8), near("c", 0.93, 0.95, 0.02)]
    missed = [at_most("a", 0.051, 0.05), at_least("b", 0.79, 0.8), near("c", 0.971, 0.95, 0.02)]
    assert [reading.met for reading in met + missed] == [True] * 3 + [False] * 3


def test_a_row_says_whether_its_limit_is_met() -> None:
    assert line_of(at_most("a", 0.1, 0.2)).endswith("0.1000  at most 0.2    met")
    assert line_of(at_most("a", 0.3, 0.2)).endswith("MISSED")
    assert line_of(Reading("a", 0.3, "", True)).endswith("0.3000")


@pytest.mark.parametrize(("limit", "code"), [(0.5, 0), (0.1, 1)])
def test_a_missed_limit_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, limit: float, code: int
) -> None:
    def measured(studies: int, seed: int) -> list[Reading]:
        return [at_most(f"{studies} of {seed}", 0.2, limit), at_most("other", 0.0, 1)]

    monkeypatch.setattr(bench_lab, "_measured", measured)
    assert main(["bench", "lab", "--studies", "20"]) == code


def test_the_load_of_the_client_s_test_has_250_answers_under_way() -> None:
    assert BUSY.rate * BUSY.max_tokens * BUSY.gap_s == 250
    assert BUSY.rate * BUSY.duration_s == 1000
    assert lab.LAG_S == 0.020


def test_without_the_lab_extra_it_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lab_extra, "find_spec", lambda name: None if name == "scipy" else name)
    assert main(["bench", "lab"]) == 3
    assert capsys.readouterr().err == "error: the lab needs scipy: pip install splitserve[lab]\n"
