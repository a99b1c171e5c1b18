"""What is learned of the workers: speed, time of an answer, seats."""

import pytest

from splitserve.ids import WorkerId
from splitserve.router.admission.credits import AHEAD_S, AHEAD_TOKENS, UNANSWERED, accepts
from splitserve.router.admission.forecast import Outlook
from splitserve.router.admission.rates import PromptRate, Rates
from splitserve.router.admission.seats import BELIEVED_S, LearnedSeats
from splitserve.router.admission.views import Fleet, Standing
from splitserve.router.policy.base import WorkerView

W = WorkerId("w")


def standing(
    role: str = "colocated", *, unsettled: int = 0, elsewhere: int = 0, **changes: object
) -> Standing:
    values: dict[str, object] = {
        "in_flight": 0,
        "running": 0,
        "waiting": 0,
        "waiting_tokens": 0,
        "free_tokens": 1000,
    }
    view = WorkerView(worker=W, role=role, **(values | changes))  # type: ignore[arg-type]
    return Standing(view, unsettled, elsewhere)


def test_speed_is_tokens_by_the_time_in_which_prompts_wait() -> None:
    rate = PromptRate()
    rate.begin(0.0, alone=True)
    rate.done(300, 1.0, more=True, saturated=False)
    rate.done(100, 1.0, more=True, saturated=False)
    rate.done(400, 2.0, more=False, saturated=False)
    assert rate.tokens_per_s == pytest.approx(400, rel=0.05)
    rate.begin(500.0, alone=True)
    rate.done(400, 501.0, more=False, saturated=True)
    assert rate.tokens_per_s == pytest.approx(400, rel=0.05)


def test_a_lone_short_prompt_tells_nothing_of_speed() -> None:
    rate = PromptRate()
    rate.begin(0.0, alone=True)
    rate.done(5, 1.0, more=False, saturated=False)
    assert rate.tokens_per_s is None


def test_time_spent_on_prompts_that_were_given_up_is_not_counted() -> None:
    rate = PromptRate()
    rate.begin(0.0, alone=True)
    rate.idle()
    rate.done(5, 50.0, more=False, saturated=True)
    assert rate.tokens_per_s is None
    rate.begin(100.0, alone=False)
    rate.done(50, 101.0, more=False, saturated=True)
    assert rate.tokens_per_s == pytest.approx(50)


def test_speed_follows_the_worker_when_it_changes() -> None:
    rate, now = PromptRate(), 0.0
    for tokens in [100] * 50 + [10] * 50:
        rate.begin(now, alone=True)
        now += 1.0
        rate.done(tokens, now, more=False, saturated=True)
    assert rate.tokens_per_s == pytest.approx(10, rel=0.1)


def test_the_time_of_an_answer_is_known_from_the_first_that_ends() -> None:
    rates = Rates()
    assert rates.answer_s is None
    rates.answered(4.0)
    assert rates.answer_s == 4.0
    rates.answered(2.0)
    assert rates.answer_s == 3.0


def test_places_become_free_at_the_rate_of_running_by_answer_time() -> None:
    rates = Rates()
    rates.answered(4.0)
    outlook = Outlook(Fleet([standing()], running=8), rates)
    assert outlook.forecast(0, 0, 10).wait_s == 0.5
    assert outlook.forecast(9, 0, 10).wait_s == 5.0


def test_where_prompts_are_the_bottleneck_their_tokens_count() -> None:
    rates = Rates()
    rates.answered(1.0)
    rates.prompt(W).begin(0.0, alone=True)
    rates.prompt(W).done(100, 1.0, more=False, saturated=True)
    fleet = Fleet([standing("prefill", waiting_tokens=50), standing("decode")], running=100)
    forecast = Outlook(fleet, rates).forecast(3, 1000, 150)
    assert forecast.wait_s == pytest.approx(10.0)
    assert forecast.prompt_s == pytest.approx(2.0)
    assert forecast.first_token_s == pytest.approx(12.0)


def test_workers_not_measured_yet_are_taken_for_as_fast_as_the_others() -> None:
    rates = Rates()
    rates.prompt(W).begin(0.0, alone=True)
    rates.prompt(W).done(100, 1.0, more=False, saturated=True)
    view = standing().view
    other = WorkerView(WorkerId("v"), view.role, 0, 0, 0, 0, 1000)
    fleet = Fleet([standing(), Standing(other)], running=0)
    assert Outlook(fleet, rates).forecast(0, 400, 0).wait_s == pytest.approx(2.0)


def test_before_anything_is_known_nothing_takes_time() -> None:
    forecast = Outlook(Fleet([standing()], running=5), Rates()).forecast(100, 10_000, 500)
    assert forecast.first_token_s == 0.0


def test_a_worker_with_all_seats_taken_accepts_nothing_whoever_sits_there() -> None:
    assert accepts(standing(in_flight=2, running=2), 3, None)
    assert not accepts(standing(in_flight=3, running=2), 3, None)
    assert not accepts(standing(in_flight=2, elsewhere=1), 3, None)
    assert accepts(standing(), 0, None)


def test_prompts_wait_here_and_not_at_the_worker() -> None:
    assert accepts(standing("prefill", waiting_tokens=AHEAD_TOKENS - 1), None, None)
    assert not accepts(standing("prefill", waiting_tokens=AHEAD_TOKENS), None, None)
    assert not accepts(standing("prefill", waiting_tokens=100), None, 100 / AHEAD_S)
    assert accepts(standing("prefill", waiting_tokens=99), None, 100 / AHEAD_S)
    linked = standing("decode", waiting_tokens=AHEAD_TOKENS, linked=("p0",))
    assert accepts(linked, None, None)


def test_a_decode_worker_of_unknown_seats_is_asked_for_few_at_a_time() -> None:
    asked = standing("decode", unsettled=UNANSWERED, linked=("p0",))
    assert not accepts(asked, None, None)
    assert accepts(asked, 100, None)


def test_a_worker_that_queues_what_it_was_sent_gets_no_more() -> None:
    assert not accepts(standing(waiting=1, unsettled=1), None, None)
    assert accepts(standing(waiting=1), None, None)
    assert accepts(standing("prefill", waiting=1, unsettled=1), None, None)


def test_a_refusal_tells_the_seats_for_a_while() -> None:
    seats = LearnedSeats()
    assert seats.limit(W, 0.0) is None
    seats.refused(W, 4, 0.0)
    assert seats.limit(W, BELIEVED_S / 2) == 4
    assert seats.limit(W, BELIEVED_S) is None


def test_an_empty_worker_that_refuses_tells_nothing_of_seats() -> None:
    seats = LearnedSeats()
    seats.refused(W, 0, 0.0)
    assert seats.limit(W, 0.0) is None
