"""What is asked of vLLM, as JSON."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from splitserve.ids import HandoffId, RequestId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams, StructuredOutputs
from splitserve.router.workers.vllm import bodies
from splitserve.router.workers.vllm.bodies import COMPLETIONS, GENERATE, Asked, Endpoint
from splitserve.router.workers.vllm.dialects.base import Leg
from splitserve.router.workers.vllm.exactness import first_token_at_once, replayable

H = HandoffId("r#0")
ENDPOINT = Endpoint(GENERATE, "m", 4096)


def request(**sampling: Any) -> GenerateRequest:
    settings = SamplingParams(**{"seed": 7, "max_tokens": 8} | sampling)
    return GenerateRequest(RequestId("r"), (1, 2, 3), settings, priority=2, cache_salt="s")


def body(asked: Asked, request: GenerateRequest, endpoint: Endpoint = ENDPOINT) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(bodies.encode(endpoint, request, asked))
    return decoded


def test_generate_gets_ids_and_every_sampling_field() -> None:
    asked = request(logit_bias={5: 1.5}, stop_token_ids=(9,))
    sent = body(bodies.whole(asked), asked)
    assert sent["token_ids"] == [1, 2, 3]
    assert sent["stream"] is True
    assert sent["cache_salt"] == "s"
    assert "priority" not in sent
    assert sent["sampling_params"] == {
        "max_tokens": 8,
        "min_tokens": 0,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": 7,
        "stop_token_ids": [9],
        "ignore_eos": False,
        "logit_bias": {"5": 1.5},
        "detokenize": False,
    }


def test_completions_asks_for_ids_instead_of_text() -> None:
    asked = request(logprobs=0)
    endpoint = replace(ENDPOINT, path=COMPLETIONS, priorities=True)
    sent = body(bodies.whole(asked), asked, endpoint)
    assert sent["prompt"] == [1, 2, 3]
    assert sent["return_token_ids"] is sent["return_tokens_as_token_ids"] is True
    assert (sent["logprobs"], sent["priority"], sent["model"]) == (0, 2, "m")
    assert "sampling_params" not in sent


def test_a_replay_is_shorter_by_what_the_client_has() -> None:
    sent = body(bodies.whole(request(min_tokens=3), (10, 11)), request())
    assert sent["token_ids"] == [1, 2, 3, 10, 11]
    assert (sent["sampling_params"]["max_tokens"], sent["sampling_params"]["min_tokens"]) == (6, 1)


def test_prefill_draws_one_token_that_min_tokens_still_holds_for() -> None:
    asked = bodies.prefill(request(min_tokens=3), H, Leg({"p": 1}, {"X-Extra": "e"}))
    sent = body(asked, request())
    assert (sent["sampling_params"]["max_tokens"], sent["sampling_params"]["min_tokens"]) == (1, 1)
    assert sent["stream"] is False
    assert "stream_options" not in sent
    assert sent["kv_transfer_params"] == {"p": 1}
    assert asked.headers == {"X-Request-Id": H, "X-Extra": "e"}


def test_decode_gets_the_same_prompt_under_the_same_id() -> None:
    asked = bodies.decode(request(), H, Leg({"d": 1}, {"X-Request-Id": "own"}))
    sent = body(asked, request())
    assert sent["token_ids"] == [1, 2, 3]
    assert sent["sampling_params"]["max_tokens"] == 8
    assert asked.headers == {"X-Request-Id": "own"}


def test_a_release_needs_one_block_and_fills_none() -> None:
    sent = body(bodies.release(request(), H, {"d": 1}), request())
    assert (sent["token_ids"], sent["sampling_params"]["max_tokens"]) == ([1], 1)


def test_the_answer_never_asks_for_more_than_the_model_holds() -> None:
    long = msgspec.structs.replace(request(max_tokens=100), token_ids=tuple(range(90)))
    sent = body(bodies.whole(long), long, replace(ENDPOINT, max_model_len=100))
    assert sent["sampling_params"]["max_tokens"] == 10


@pytest.mark.parametrize(
    ("outputs", "sent", "ended"),
    [
        (StructuredOutputs(json='{"type":"object"}'), {"json": '{"type":"object"}'}, True),
        (StructuredOutputs(json_object=True, think_end=(4,)), {"json_object": True}, None),
        (
            StructuredOutputs(choice=("a", "b"), think_end=(4,), think_open=True),
            {"choice": ["a", "b"]},
            False,
        ),
    ],
    ids=["at_once", "maybe_after_thought", "after_thought"],
)
def test_constraints_are_passed_on_with_where_they_begin(
    outputs: StructuredOutputs, sent: dict[str, Any], ended: bool | None
) -> None:
    asked = request(structured_outputs=outputs)
    made = body(bodies.whole(asked), asked)
    assert made["sampling_params"]["structured_outputs"] == sent
    assert made["reasoning_ended"] is ended


@pytest.mark.parametrize(
    ("settings", "at_once", "again"),
    [
        ({"temperature": 0.0}, True, True),
        ({"temperature": 1.0, "top_p": 0.9}, True, True),
        ({"repetition_penalty": 1.1, "logprobs": 2, "min_tokens": 2}, True, True),
        ({"presence_penalty": 0.5}, False, True),
        ({"frequency_penalty": 0.5}, False, True),
        ({"structured_outputs": StructuredOutputs(json_object=True)}, False, False),
    ],
    ids=["greedy", "seeded", "harmless", "presence", "frequency", "grammar"],
)
def test_an_answer_begins_at_prefill_only_where_a_replay_is_exact(
    settings: dict[str, Any], at_once: bool, again: bool
) -> None:
    sampling = request(**settings).sampling
    assert (first_token_at_once(sampling), replayable(sampling)) == (at_once, again)
