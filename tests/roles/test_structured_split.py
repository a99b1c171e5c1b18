"""An answer held to a grammar, split over two workers; and one that its grammar cannot continue."""

import json
from pathlib import Path

import msgspec
import pytest
from network import (
    Network,
    abort_everywhere,
    answer_of,
    make_request,
    prefill,
    reserve,
    split_pair,
    submit,
)

from small_tokenizer import WITHOUT_SPACES, ids_of, text_of, write_tokenizer
from splitserve.engine.grammar.matcher import Matcher
from splitserve.errors import CallerError
from splitserve.protocol.control import Failed, StepTokens, Submit
from splitserve.protocol.generate import GenerateRequest, TokenChunk
from splitserve.protocol.handoff import Prefill, Refuse
from splitserve.protocol.sampling import StructuredOutputs

PROMPT = tuple(range(20, 57))
NUMBERS = StructuredOutputs(
    json='{"type":"array","items":{"enum":[1,12,7]},"minItems":3,"maxItems":9}'
)
BROKEN = StructuredOutputs(json='{"type":"something"}')


@pytest.fixture(params=[1, 2])
def network(tmp_path: Path, request: pytest.FixtureRequest) -> Network:
    return split_pair(tokenizer=write_tokenizer(tmp_path, WITHOUT_SPACES), depth=request.param)


def held(
    name: str, structured: StructuredOutputs = NUMBERS, max_tokens: int = 60
) -> GenerateRequest:
    request = make_request(name, PROMPT, max_tokens)
    sampling = msgspec.structs.replace(request.sampling, structured_outputs=structured)
    return msgspec.structs.replace(request, sampling=sampling)


def said(network: Network, name: str) -> list[TokenChunk]:
    steps = network.said(name, StepTokens)
    return [chunk for step in steps if isinstance(step, StepTokens) for chunk in step.chunks]


def failures(network: Network, name: str) -> list[tuple[str, str]]:
    return [(f.request_id, f.code) for f in network.said(name, Failed) if isinstance(f, Failed)]


def test_the_split_answer_conforms_and_is_the_colocated_one(network: Network) -> None:
    split, whole = held("split"), held("whole")
    prefill(network, split, reserve(network, split))
    submit(network, "d", whole)
    network.step_all()
    answer = answer_of(network, split)
    assert answer == answer_of(network, whole)
    assert set(json.loads(text_of(answer))) <= {1, 12, 7}
    assert network.idle()


@pytest.mark.parametrize("count", [1, 4])
def test_a_replay_goes_on_within_the_grammar(network: Network, count: int) -> None:
    whole, again = held("whole"), held("again")
    submit(network, "d", whole)
    network.step_all()
    answer = answer_of(network, whole)
    network.tell("p", Submit(again, tuple(answer[:count])))
    network.step_all()
    continued = [token for chunk in said(network, "p") for token in chunk.token_ids]
    assert continued == answer[count:]


def test_a_constraint_that_cannot_be_built_is_refused_everywhere(network: Network) -> None:
    good, bad = held("r"), held("r", BROKEN)
    target = reserve(network, good)
    network.tell("p", Prefill(bad, target, 5.0))
    (refusal,) = network.said("p", Refuse)
    assert isinstance(refusal, Refuse)
    assert not refusal.retryable
    assert "something" in refusal.reason
    abort_everywhere(network, good)
    submit(network, "d", bad)
    assert failures(network, "d") == [("r", "invalid")]
    network.step_all()
    assert network.idle()


def test_without_a_tokenizer_a_constraint_is_refused() -> None:
    network = split_pair()
    submit(network, "d", held("r"))
    assert failures(network, "d") == [("r", "invalid")]


def test_an_answer_that_cannot_go_on_fails_alone(network: Network) -> None:
    bad, other = held("bad"), held("other")
    network.tell("d", Submit(bad, tuple(ids_of("xy"))))
    submit(network, "d", other)
    network.step_all()
    assert failures(network, "d") == [("bad", "invalid")]
    assert answer_of(network, bad) == []
    assert json.loads(text_of(answer_of(network, other)))
    assert network.idle()


def test_a_handed_over_answer_that_cannot_go_on_fails_alone(network: Network) -> None:
    """Decode is told another grammar than prefill."""
    theirs, ours = held("r", StructuredOutputs(regex="x+")), held("r")
    prefill(network, theirs, reserve(network, ours))
    network.step_all()
    assert failures(network, "d") == [("r", "invalid")]
    assert network.idle()


def test_a_prompt_whose_first_token_cannot_be_chosen_gives_its_grant_back(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(matcher: Matcher, avoid: object = ()) -> bytes:
        raise CallerError("the grammar takes too long to follow")

    monkeypatch.setattr(Matcher, "mask", refuse)
    request = held("r")
    prefill(network, request, reserve(network, request))
    network.step_all()
    assert failures(network, "p") == [("r", "invalid")]
    assert network.counts("d").granted > 0
    abort_everywhere(network, request)
    network.step_all()
    assert network.idle()
