"""Each sampling parameter does what vLLM says it does, and a draw depends on its row alone."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_rig import sampling

from splitserve.engine.api import SampleSpec
from splitserve.engine.runner.sampling import Choice, choose, uniform

VOCAB = 50
LOGITS = torch.randn(VOCAB, generator=torch.Generator().manual_seed(4)).mul_(2.0)


def spec(position: int = 0, **fields: Any) -> SampleSpec:
    names = ("prompt", "output", "banned", "allowed")
    outside = {name: fields.pop(name) for name in names if name in fields}
    return SampleSpec(sampling(**{"temperature": 1.0, **fields}), position, **outside)


def one(logits: torch.Tensor, chosen: SampleSpec) -> Choice:
    [choice] = choose(logits[None], [chosen])
    return choice


def draws(count: int, logits: torch.Tensor = LOGITS, **fields: Any) -> list[int]:
    """Tokens drawn from one distribution at ``count`` positions."""
    specs = [spec(position, **fields) for position in range(count)]
    return [token for token, _ in choose(logits.expand(count, -1), specs)]


def possible(logits: torch.Tensor = LOGITS, **fields: Any) -> set[int]:
    return set(draws(3000, logits, **fields))


def likeliest(count: int, logits: torch.Tensor = LOGITS) -> set[int]:
    return set(logits.topk(count).indices.tolist())


def fits(counts: Sequence[float], wanted: Sequence[float]) -> bool:
    """Pearson's chi-square test at 0.1%, with Wilson and Hilferty's approximate quantile."""
    statistic = sum((c - w) ** 2 / w for c, w in zip(counts, wanted, strict=True))
    spread = 2 / (9 * (len(counts) - 1))
    return statistic < (len(counts) - 1) * (1 - spread + 3.09 * math.sqrt(spread)) ** 3


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_draws_follow_the_distribution(temperature: float) -> None:
    expected = (LOGITS / temperature).softmax(-1) * 4000
    common = expected >= 5
    counts = torch.bincount(torch.tensor(draws(4000, temperature=temperature)), minlength=VOCAB)
    found = [*counts[common].tolist(), int(counts[~common].sum())]
    assert fits(found, [*expected[common].tolist(), float(expected[~common].sum())])


def test_filtered_draws_follow_what_is_left_of_the_distribution() -> None:
    kept = LOGITS.topk(5)
    counts = torch.bincount(torch.tensor(draws(2000, top_k=5)), minlength=VOCAB)
    assert fits(counts[kept.indices].tolist(), (kept.values.softmax(-1) * 2000).tolist())


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_no_temperature_takes_the_likeliest(temperature: float) -> None:
    assert set(draws(20, temperature=temperature, top_p=0.3)) == likeliest(1)
    assert set(draws(20, temperature=temperature, logprobs=1)) == likeliest(1)


@pytest.mark.parametrize("size", [50, 128, 129, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equals_the_first_is_chosen(size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(size)
    logits = torch.randint(0, 9, (20, size), generator=generator).to(dtype)
    expected = [row.index(max(row)) for row in logits.tolist()]
    greedy = [spec(position, temperature=0.0) for position in range(20)]
    assert [token for token, _ in choose(logits, greedy)] == expected
    scored = [spec(position, temperature=0.0, logprobs=0) for position in range(20)]
    assert [token for token, _ in choose(logits, scored)] == expected


@pytest.mark.parametrize("temperature", [1e-5, 1e-3])
def test_a_tiny_temperature_does_not_overflow(temperature: float) -> None:
    assert set(draws(20, LOGITS * 1000, temperature=temperature)) == likeliest(1)


@pytest.mark.parametrize("top_k", [1, 3, 7])
def test_top_k_leaves_the_k_likeliest(top_k: int) -> None:
    assert possible(top_k=top_k, temperature=5.0) == likeliest(top_k)


@pytest.mark.parametrize("top_k", [0, VOCAB, VOCAB + 1])
def test_top_k_of_none_or_all_changes_nothing(top_k: int) -> None:
    assert draws(200, top_k=top_k) == draws(200)


def nucleus(logits: torch.Tensor, top_p: float) -> int:
    """How many of the likeliest tokens it takes to hold ``top_p``."""
    reached = logits.double().softmax(-1).sort(descending=True).values.cumsum(0)
    return int((reached < top_p).sum()) + 1


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.8])
def test_top_p_leaves_the_smallest_set_that_holds_p(top_p: float) -> None:
    assert possible(top_p=top_p) == likeliest(nucleus(LOGITS, top_p))


def test_top_p_holds_its_share_of_what_top_k_left() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    # Of 4/7 and 3/7 the first alone holds half; of all four it does not.
    assert possible(logits, top_k=2, top_p=0.5) == {0}
    assert possible(logits, top_p=0.5) == {0, 1}


def test_top_p_of_a_flat_distribution_reaches_far_into_the_vocabulary() -> None:
    logits = torch.linspace(0.001, 0.0, 5000)
    tokens = draws(500, logits, top_p=0.9)
    assert max(tokens) < nucleus(logits, 0.9) <= 4502
    assert max(tokens) > 4000


@pytest.mark.parametrize("min_p", [0.05, 0.3, 1.0])
def test_min_p_leaves_what_is_at_least_that_share_of_the_likeliest(min_p: float) -> None:
    probabilities = LOGITS.softmax(-1)
    kept = int((probabilities >= min_p * probabilities.max() * (1 - 1e-6)).sum())
    assert possible(min_p=min_p) == likeliest(kept)


def test_ties_at_a_border_are_all_kept() -> None:
    logits = torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0])
    assert possible(logits, top_k=3) == {0, 1, 2, 3, 4}
    assert possible(logits, top_k=2) == {1, 3}


def test_bias_moves_a_token() -> None:
    worst = int(LOGITS.argmin())
    assert set(draws(50, logit_bias={worst: 100.0})) == {worst}
    [best] = likeliest(1)
    assert best not in possible(logit_bias={best: -100.0}, temperature=2.0)
    assert one(LOGITS, spec(temperature=0.0, logit_bias={best: -100.0}))[0] != best


def test_banned_tokens_are_never_chosen() -> None:
    banned = sorted(likeliest(4))
    assert not possible(banned=banned) & set(banned)
    assert one(LOGITS, spec(temperature=0.0, banned=banned))[0] == LOGITS.topk(5).indices[4]


def scores_after(logits: Sequence[float], **fields: Any) -> list[float]:
    """The scores behind the draw: found by how much bias makes each token the likeliest."""
    found = []
    for token in range(len(logits)):
        low, high = -50.0, 50.0
        for _ in range(40):
            middle = (low + high) / 2
            # A rival without penalty and with score 0 stands at the end.
            chosen = spec(temperature=0.0, logit_bias={len(logits): middle}, **fields)
            others = {other: -1000.0 for other in range(len(logits)) if other != token}
            chosen.params.logit_bias.update(others)
            wins = one(torch.tensor([*logits, 0.0]), chosen)[0] == token
            low, high = (middle, high) if wins else (low, middle)
        found.append(round(high, 3))
    return found


def test_repetition_penalty_divides_gains_and_multiplies_losses_of_prompt_and_output() -> None:
    logits = [2.0, 3.0, -1.0, 4.0]
    found = scores_after(logits, repetition_penalty=2.0, prompt=(0, 0, 2), output=(3,))
    assert found == [1.0, 3.0, -2.0, 2.0]


def test_presence_penalty_counts_a_token_of_the_output_once() -> None:
    found = scores_after([2.0, 3.0, 4.0], presence_penalty=0.5, prompt=(0,), output=(2, 2, 1))
    assert found == [2.0, 2.5, 3.5]


def test_frequency_penalty_counts_each_time() -> None:
    found = scores_after([2.0, 3.0, 4.0], frequency_penalty=0.5, prompt=(0,), output=(2, 2, 1))
    assert found == [2.0, 2.5, 3.0]


def test_penalties_add_up_after_repetition() -> None:
    found = scores_after(
        [8.0, 3.0],
        repetition_penalty=2.0,
        frequency_penalty=0.5,
        presence_penalty=0.25,
        output=(0, 0, 0),
    )
    assert found == [2.25, 3.0]


def test_ids_outside_the_vocabulary_have_no_effect() -> None:
    plain = draws(50)
    strange = {VOCAB: 5.0, -1: 5.0}
    assert draws(50, logit_bias=strange) == plain
    assert draws(50, banned=(VOCAB + 7,)) == plain
    assert draws(50, repetition_penalty=1.5, prompt=(VOCAB,), output=(-3,)) == plain


def test_the_scores_are_left_as_they_are() -> None:
    logits = LOGITS.clone()
    everything = spec(
        top_k=9,
        top_p=0.9,
        min_p=0.1,
        repetition_penalty=1.3,
        presence_penalty=1.0,
        frequency_penalty=1.0,
        logit_bias={1: 2.0},
        output=(1, 2),
        banned=(3,),
        logprobs=2,
    )
    one(logits, everything)
    assert torch.equal(logits, LOGITS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logprobs_are_those_of_the_unmodified_scores(dtype: torch.dtype) -> None:
    logits = LOGITS.to(dtype)
    reference = logits.float().log_softmax(-1)
    order = reference.sort(descending=True, stable=True)
    chosen = spec(logprobs=4, temperature=3.0, top_k=20, logit_bias={1: 5.0}, banned=(2,))
    token, logprob = one(logits, chosen)
    assert logprob is not None
    assert logprob.token_id == token
    assert logprob.logprob == pytest.approx(float(reference[token]))
    assert logprob.rank == int((reference > reference[token]).sum()) + 1
    assert [token for token, _ in logprob.top] == order.indices[:4].tolist()
    assert [value for _, value in logprob.top] == pytest.approx(order.values[:4].tolist())


def test_no_alternatives_still_gives_the_chosen_tokens_logprob() -> None:
    token, logprob = one(LOGITS, spec(logprobs=0))
    assert logprob is not None
    assert (logprob.token_id, logprob.top) == (token, ())
    assert one(LOGITS, spec())[1] is None


VARIETY: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"seed": 2},
    {"seed": 3, "top_p": 0.7},
    {"seed": 4, "top_k": 6, "logprobs": 3},
    {"seed": 5, "min_p": 0.1, "temperature": 2.0},
    {"seed": 6, "repetition_penalty": 1.4, "output": (1, 2, 3)},
    {"seed": 7, "logit_bias": {4: 3.0}, "banned": (0,)},
]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(VARIETY), st.integers(0, 30)), min_size=1, max_size=9))
def test_a_choice_does_not_depend_on_the_batch(chosen: list[tuple[dict[str, Any], int]]) -> None:
    generator = torch.Generator().manual_seed(len(chosen))
    logits = torch.randn(len(chosen), VOCAB, generator=generator)
    specs = [spec(position, **fields) for fields, position in chosen]
    together = choose(logits, specs)
    assert together == [one(row, alone) for row, alone in zip(logits, specs, strict=True)]
    backwards = choose(logits.flip(0), specs[::-1])
    assert together == backwards[::-1]


def test_seed_and_position_choose_the_draw() -> None:
    assert draws(30, seed=1) == draws(30, seed=1)
    assert draws(30, seed=1) != draws(30, seed=2)
    assert len(set(draws(30, seed=1))) > 1


@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**31))
def test_a_uniform_number_lies_in_its_range_and_is_always_the_same(seed: int, at: int) -> None:
    assert 0.0 <= uniform(seed, at) < 1.0
    assert uniform(seed, at) == uniform(seed, at)


def test_uniform_numbers_are_the_same_on_every_machine() -> None:
    assert uniform(0, 0) == 0.3989128188003649
    assert uniform(12345, 7) == 0.18699154196197998


def test_uniform_numbers_fill_the_range_evenly() -> None:
    counts = [0] * 20
    for seed in range(50):
        for position in range(100):
            counts[math.floor(uniform(seed, position) * 20)] += 1
    assert fits(counts, [250.0] * 20)


def mask(ids: set[int]) -> bytes:
    return sum(1 << token for token in ids).to_bytes(-(-VOCAB // 8), "little")


@settings(max_examples=50, deadline=None)
@given(
    st.sets(st.integers(0, VOCAB - 1), min_size=1),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.fixed_dictionaries(
        {},
        optional={
            "top_k": st.integers(1, VOCAB),
            "top_p": st.floats(0.01, 1.0),
            "min_p": st.floats(0.0, 1.0),
            "repetition_penalty": st.floats(0.5, 2.0),
            "logit_bias": st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100)),
            "seed": st.integers(0, 100),
        },
    ),
)
def test_only_allowed_ids_are_chosen_whatever_else_is_asked(
    ids: set[int], temperature: float, how: dict[str, Any]
) -> None:
    token, _ = one(LOGITS, spec(allowed=mask(ids), temperature=temperature, **how))
    assert token in ids


def test_among_allowed_ids_the_likeliest_is_the_greedy_one() -> None:
    ids = set(range(VOCAB)) - likeliest(5)
    token, _ = one(LOGITS, spec(allowed=mask(ids), temperature=0.0))
    assert {token} == likeliest(6) - likeliest(5)


def test_draws_among_allowed_ids_follow_their_share_of_the_distribution() -> None:
    ids = likeliest(4)
    expected = LOGITS.softmax(-1)[sorted(ids)]
    counts = torch.bincount(torch.tensor(draws(4000, allowed=mask(ids))), minlength=VOCAB)
    assert fits(counts[sorted(ids)].tolist(), (4000 * expected / expected.sum()).tolist())


def test_a_bias_counts_among_allowed_ids() -> None:
    ids = likeliest(3)
    last = (likeliest(3) - likeliest(2)).pop()
    biased = spec(allowed=mask(ids), temperature=0.0, logit_bias={last: 100.0})
    assert one(LOGITS, biased)[0] == last


def test_log_probabilities_do_not_know_what_was_allowed() -> None:
    (likely,) = likeliest(1)
    _, free = one(LOGITS, spec(temperature=0.0, logprobs=3))
    token, bound = one(
        LOGITS, spec(temperature=0.0, logprobs=3, allowed=mask(set(range(VOCAB)) - {likely}))
    )
    assert free is not None
    assert bound is not None
    assert bound.top == free.top
    assert (bound.token_id, bound.rank) == (token, 2)
    assert bound.logprob == pytest.approx(free.top[1][1])


def test_a_constrained_row_leaves_the_others_of_its_batch_alone() -> None:
    specs = [spec(temperature=0.0), spec(temperature=0.0, allowed=mask({7})), spec(temperature=0.0)]
    (likely,) = likeliest(1)
    assert [token for token, _ in choose(LOGITS.repeat(3, 1), specs)] == [likely, 7, likely]
