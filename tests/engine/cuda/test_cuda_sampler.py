"""The device's sampler chooses what the CPU's chooses; both run here on the CPU."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from splitserve.engine.api import SampleSpec
from splitserve.engine.cuda.sampler import Sampler
from splitserve.engine.runner.sampling import choose
from splitserve.protocol.sampling import SamplingParams

VOCAB = 67
TOKENS = st.integers(0, VOCAB - 1)


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    return Sampler(torch.device("cpu"))


def masks(open_ids: set[int]) -> bytes:
    packed = bytearray(-(-VOCAB // 8))
    for token in open_ids:
        packed[token // 8] |= 1 << token % 8
    return bytes(packed)


@st.composite
def specs(draw: st.DrawFn) -> SampleSpec:
    params = SamplingParams(
        seed=draw(st.integers(0, 2**32)),
        max_tokens=9,
        temperature=draw(st.sampled_from([0.0, 0.3, 1.0, 2.0])),
        top_p=draw(st.sampled_from([1.0, 0.9, 0.3, 0.01])),
        top_k=draw(st.sampled_from([0, 1, 5, VOCAB, VOCAB + 9])),
        min_p=draw(st.sampled_from([0.0, 0.05, 0.9])),
        presence_penalty=draw(st.sampled_from([0.0, 0.7])),
        frequency_penalty=draw(st.sampled_from([0.0, -0.4])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3])),
        logit_bias=draw(st.dictionaries(st.integers(0, VOCAB + 5), st.floats(-5, 5), max_size=3)),
        logprobs=draw(st.sampled_from([None, 0, 3])),
    )
    history = params.needs_history
    return SampleSpec(
        params,
        position=draw(st.integers(0, 50)),
        prompt=draw(st.lists(TOKENS, max_size=6)) if history else (),
        output=draw(st.lists(TOKENS, max_size=6)) if history else (),
        banned=draw(st.sampled_from([(), (3, 9)])),
        allowed=draw(st.sampled_from([None, masks({1, 2, 5, 40, 66})])),
    )


@given(asked=st.lists(specs(), min_size=1, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=120, deadline=None)
def test_chooses_what_the_cpu_sampler_chooses(asked: list[SampleSpec], seed: int) -> None:
    sampler = Sampler(torch.device("cpu"))
    logits = torch.randn(len(asked), VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    expected = choose(logits, asked)
    tokens = sampler.choose(logits, asked)
    assert tokens.dtype == torch.int32
    assert tokens.tolist() == [token for token, _ in expected]
    logprobs = sampler.logprobs(logits, tokens, asked)
    found = {} if logprobs is None else logprobs.read()
    for row, (_, wanted) in enumerate(expected):
        if wanted is None:
            assert row not in found
            continue
        assert (found[row].token_id, found[row].rank) == (wanted.token_id, wanted.rank)
        assert math.isclose(found[row].logprob, wanted.logprob, abs_tol=1e-5)
        assert [token for token, _ in found[row].top] == [token for token, _ in wanted.top]


def test_more_hard_rows_than_are_done_at_once(sampler: Sampler) -> None:
    asked = [
        SampleSpec(SamplingParams(seed=row, max_tokens=2, temperature=1.0, top_k=7), row)
        for row in range(70)
    ]
    logits = torch.randn(70, VOCAB, generator=torch.Generator().manual_seed(5))
    expected = [token for token, _ in choose(logits, asked)]
    assert sampler.choose(logits, asked).tolist() == expected


def test_scores_stay_as_they_are(sampler: Sampler) -> None:
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(6))
    before = logits.clone()
    params = SamplingParams(seed=1, max_tokens=2, temperature=1.0, logit_bias={3: 5.0})
    sampler.choose(logits, [SampleSpec(params, 0, banned=(1,))] * 2)
    assert torch.equal(logits, before)
