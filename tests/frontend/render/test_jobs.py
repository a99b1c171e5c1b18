"""A body becomes token ids and resolved settings."""

import json
from typing import Any

import pytest

from frontend.samples import CONTEXT, byte_level_inner, served
from splitserve.errors import CallerError
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.job import Job
from splitserve.frontend.render.pipeline import Renderer
from splitserve.frontend.tokenize import tokenize
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.openai.completions import CompletionRequest

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def renderer(model: ServedModel) -> Renderer:
    return Renderer(model, FrontendConfig())


def chat(renderer: Renderer, **fields: Any) -> Job:
    return renderer.chat(json.dumps({"model": "tiny", "messages": HELLO, **fields}).encode())


def completion(renderer: Renderer, **fields: Any) -> Job:
    return renderer.completion(json.dumps({"model": "tiny", "prompt": "hello", **fields}).encode())


def test_a_chat_may_use_the_rest_of_the_context(renderer: Renderer) -> None:
    job = chat(renderer)
    assert job.sampling[0].max_tokens == CONTEXT - len(job.prompts[0].token_ids)


def test_a_completion_has_16_tokens_unless_told(renderer: Renderer) -> None:
    assert completion(renderer).sampling[0].max_tokens == 16
    assert completion(renderer, max_tokens=None).sampling[0].max_tokens == 16
    assert completion(renderer, max_tokens=3).sampling[0].max_tokens == 3


def test_the_newer_name_of_max_tokens_wins(renderer: Renderer) -> None:
    job = chat(renderer, max_tokens=32, max_completion_tokens=64)
    assert job.sampling[0].max_tokens == 64


def test_max_tokens_is_cut_to_what_fits(renderer: Renderer) -> None:
    job = completion(renderer, prompt=[1] * (CONTEXT - 5), max_tokens=10_000, min_tokens=9)
    assert (job.sampling[0].max_tokens, job.sampling[0].min_tokens) == (5, 5)


@pytest.mark.parametrize("prompt", [[1] * CONTEXT, "fox " * 5 * CONTEXT, "x" * 1_000_000])
def test_a_prompt_without_room_for_an_answer_is_refused(renderer: Renderer, prompt: Any) -> None:
    with pytest.raises(CallerError) as caught:
        completion(renderer, prompt=prompt)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")


def test_defaults_are_openais_and_null_means_not_given(renderer: Renderer) -> None:
    bare = completion(renderer, seed=7)
    nulls = dict.fromkeys(CompletionRequest.model_fields.keys() - {"prompts", "seed"})
    assert completion(renderer, seed=7, **nulls) == bare
    params = bare.sampling[0]
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (1.0, 1.0, 0, 7)


def test_settings_arrive_as_given(renderer: Renderer) -> None:
    params = completion(
        renderer,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.1,
        logit_bias={"5": -100, "6": 2.5},
        stop_token_ids=[5, 6],
        ignore_eos=True,
        logprobs=3,
        max_tokens=9,
        min_tokens=2,
    ).sampling[0]
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 40, 0.1)
    assert (params.presence_penalty, params.frequency_penalty) == (1.0, -1.0)
    assert (params.repetition_penalty, params.logit_bias) == (1.1, {5: -100.0, 6: 2.5})
    assert (params.stop_token_ids, params.ignore_eos, params.logprobs) == ((5, 6), True, 3)
    assert params.min_tokens == 2


@pytest.mark.parametrize(("given", "resolved"), [(-1, 0), (0, 0), (3, 3)])
def test_top_k_off_has_two_spellings(renderer: Renderer, given: int, resolved: int) -> None:
    assert completion(renderer, top_k=given).sampling[0].top_k == resolved


def test_a_temperature_too_small_to_divide_by_is_greedy(renderer: Renderer) -> None:
    assert completion(renderer, temperature=1e-9).sampling[0].temperature == 0.0


def test_each_answer_draws_with_its_own_seed(renderer: Renderer) -> None:
    job = completion(renderer, n=3, seed=2**63 - 2, prompt=["a", "b"])
    assert [params.seed for params in job.sampling] == [2**63 - 2, 2**63 - 1, 0] * 2


def test_a_seed_is_drawn_where_none_is_given(renderer: Renderer) -> None:
    seeds = {completion(renderer).sampling[0].seed for _ in range(4)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_chat_logprobs_are_a_switch_and_a_number(renderer: Renderer) -> None:
    assert chat(renderer).sampling[0].logprobs is None
    assert chat(renderer, logprobs=True).sampling[0].logprobs == 0
    assert chat(renderer, logprobs=True, top_logprobs=4).sampling[0].logprobs == 4
    assert completion(renderer, logprobs=0).sampling[0].logprobs == 0


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [("ab", ["ab"]), (["ab", "cd"], ["ab", "cd"])],
)
def test_text_prompts(renderer: Renderer, tokenizer: Tokenizer, prompt: Any, texts: Any) -> None:
    job = completion(renderer, prompt=prompt)
    expected = [tokenizer.encode_prompt(text) for text in texts]
    assert [item.token_ids for item in job.prompts] == expected


@pytest.mark.parametrize(("prompt", "ids"), [([5, 6], [(5, 6)]), ([[5], [6, 7]], [(5,), (6, 7)])])
def test_token_id_prompts(renderer: Renderer, prompt: Any, ids: Any) -> None:
    assert [item.token_ids for item in completion(renderer, prompt=prompt).prompts] == ids


def test_echo_gives_the_prompt_back(renderer: Renderer, tokenizer: Tokenizer) -> None:
    assert completion(renderer, echo=True).prompts[0].echo == "hello"
    ids = list(tokenizer.encode_prompt("fox"))
    assert completion(renderer, echo=True, prompt=ids).prompts[0].echo == "fox"
    assert completion(renderer).prompts[0].echo == ""


def test_requests_are_named_after_the_answer(renderer: Renderer) -> None:
    job = completion(renderer, n=2, prompt=["a", "b"], priority=-3, cache_salt="tenant")
    requests = job.requests("cmpl-x", "alice", "s")
    assert [request.request_id for request in requests] == [f"cmpl-x-{i}" for i in range(4)]
    assert [request.token_ids for request in requests] == [
        job.prompts[0].token_ids,
        job.prompts[0].token_ids,
        job.prompts[1].token_ids,
        job.prompts[1].token_ids,
    ]
    assert {(request.priority, request.cache_salt) for request in requests} == {(-3, "tenant")}
    assert {(request.owner, request.session) for request in requests} == {("alice", "s")}


def test_transfer_parameters_of_a_client_go_nowhere(renderer: Renderer) -> None:
    plain = completion(renderer, seed=1)
    assert completion(renderer, seed=1, kv_transfer_params={"remote_host": "x"}) == plain


def test_a_model_without_a_template_has_no_chat(tokenizer: Tokenizer) -> None:
    renderer = Renderer(served(tokenizer, template=None), FrontendConfig())
    with pytest.raises(CallerError, match="no chat template"):
        chat(renderer)


def test_truncation_keeps_a_prompts_last_tokens(renderer: Renderer, tokenizer: Tokenizer) -> None:
    text = "The quick brown fox " * 20
    whole = tokenizer.encode_prompt(text)
    for kept in (1, 5, len(whole), len(whole) + 9):
        job = completion(renderer, prompt=text, truncate_prompt_tokens=kept, echo=True)
        assert job.prompts[0].token_ids == whole[-kept:]
        assert job.prompts[0].echo == tokenizer.decode(whole[-kept:], skip_special=True)
    ids = completion(renderer, prompt=list(whole), truncate_prompt_tokens=5)
    assert ids.prompts[0].token_ids == whole[-5:]
    said = [{"role": "user", "content": text}]
    plain = chat(renderer, messages=said).prompts[0].token_ids
    assert (
        chat(renderer, messages=said, truncate_prompt_tokens=5).prompts[0].token_ids == plain[-5:]
    )


@pytest.mark.parametrize("max_tokens", [None, 1, 100])
def test_truncation_to_the_models_room(renderer: Renderer, max_tokens: int | None) -> None:
    said = [{"role": "user", "content": "fox " * 4 * CONTEXT}]
    job = chat(renderer, messages=said, truncate_prompt_tokens=-1, max_tokens=max_tokens)
    assert len(job.prompts[0].token_ids) == CONTEXT - (max_tokens or 1)
    assert job.sampling[0].max_tokens == (max_tokens or 1)


def test_a_megabyte_is_truncated_like_any_text(renderer: Renderer, tokenizer: Tokenizer) -> None:
    text = "alpha beta gamma delta " * 50_000
    end = tokenizer.encode_prompt(text[-2300:])
    assert (
        completion(renderer, prompt=text, truncate_prompt_tokens=200).prompts[0].token_ids
        == (end[-200:])
    )


def test_a_truncation_beyond_the_context_does_not_make_it_fit(renderer: Renderer) -> None:
    with pytest.raises(CallerError) as caught:
        completion(renderer, prompt=[1] * CONTEXT, truncate_prompt_tokens=CONTEXT)
    assert caught.value.code == "context_length_exceeded"


def bos_model(*, add_bos: bool) -> ServedModel:
    return served(Tokenizer(byte_level_inner(), bos_token="<s>", add_bos=add_bos))


def test_special_tokens_around_a_prompt_are_a_switch() -> None:
    renderer = Renderer(bos_model(add_bos=True), FrontendConfig())
    bos = 2
    assert completion(renderer).prompts[0].token_ids[0] == bos
    assert bos not in completion(renderer, add_special_tokens=False).prompts[0].token_ids
    assert bos not in chat(renderer).prompts[0].token_ids
    ids = chat(renderer, add_special_tokens=True).prompts[0].token_ids
    assert (ids[0], ids.count(bos)) == (bos, 1)


def test_counts_may_go_with_every_chunk(renderer: Renderer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    job = completion(renderer, stream=True, stream_options=options)
    assert (job.include_usage, job.continuous_usage) == (True, True)
    job = chat(renderer, stream=True, stream_options={"include_usage": True})
    assert (job.include_usage, job.continuous_usage) == (True, False)


def test_a_completion_is_not_parsed(renderer: Renderer) -> None:
    assert not completion(renderer).context.parses


def test_too_many_answers_are_refused_before_any_prompt_is_looked_at(renderer: Renderer) -> None:
    with pytest.raises(CallerError) as caught:
        completion(renderer, prompt=["x" * 20] * 100_000, n=64)
    assert caught.value.param == "n"


@pytest.mark.parametrize("n", [0, -1, 129, 16385, 10**6, 10**18])
def test_n_has_a_limit_everywhere(renderer: Renderer, n: int) -> None:
    for ask in (chat, completion):
        with pytest.raises(CallerError) as caught:
            ask(renderer, n=n)
        assert caught.value.param == "n"
    with pytest.raises(CallerError) as caught:
        completion(renderer, best_of=n)
    assert caught.value.param == "best_of"


def test_fields_that_change_no_answer_are_taken(renderer: Renderer) -> None:
    extra = {"store": True, "metadata": {"a": "b"}, "service_tier": "auto", "user": "me"}
    assert chat(renderer, seed=1, **extra) == chat(renderer, seed=1)


ESCAPE = (
    "{% for c in ''.__class__.__mro__[1].__subclasses__() %}{{ c }}{% endfor %}"
    "{{ messages[0].content }}"
)


def test_a_template_that_leaves_the_sandbox_refuses_every_request(tokenizer: Tokenizer) -> None:
    model = served(tokenizer, ESCAPE)
    for ask in (
        lambda: chat(Renderer(model, FrontendConfig())),
        lambda: Renderer(model, FrontendConfig()).responses(b'{"input": "x"}'),
        lambda: tokenize(model, b'{"messages": [{"role": "user", "content": "x"}]}'),
    ):
        with pytest.raises(CallerError, match="refused the messages") as caught:
            ask()
        assert "<class" not in caught.value.message


@pytest.mark.parametrize(
    ("fields", "whole"),
    [({}, True), ({"stream": False}, True), ({"stream": True}, False), ({"stop": ["x"]}, False)],
    ids=["plain", "not-streamed", "streamed", "stop-string"],
)
def test_an_answer_may_come_in_one_piece_where_nothing_looks_at_it_before(
    renderer: Renderer, fields: dict[str, Any], whole: bool
) -> None:
    for job in (chat(renderer, **fields), completion(renderer, **fields)):
        [request] = job.requests("a", "")
        assert request.whole is whole
