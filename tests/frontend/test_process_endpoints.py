"""What the process tells of itself, and the id that joins its records."""

from collections.abc import Iterator

import httpx
import pytest

from frontend.conftest import Serve
from frontend.live import Live
from frontend.scripted import Gate, ScriptedGenerator, Step, chunks, saying
from splitserve import __version__
from splitserve.errors import OverloadError
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.generate import GenerateRequest

COMPLETION = "/v1/completions"


@pytest.fixture
def generator(tokenizer: Tokenizer) -> ScriptedGenerator:
    return ScriptedGenerator(saying(tokenizer.encode_prompt("The lazy dog, again and again.")))


@pytest.fixture
def live(serve: Serve, generator: ScriptedGenerator) -> Live:
    return serve(generator)


def test_alive_and_ready_are_different_things(live: Live) -> None:
    assert httpx.get(live.url + "/ready").status_code == 200
    live.not_ready.append("no decode worker")
    answer = httpx.get(live.url + "/ready")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "no decode worker"
    assert httpx.get(live.url + "/health").status_code == 200


def test_version(live: Live) -> None:
    assert httpx.get(live.url + "/version").json() == {"version": __version__}


def test_models_tell_the_context_length(live: Live) -> None:
    card = httpx.get(live.url + "/v1/models").json()["data"][0]
    assert (card["id"], card["object"], card["max_model_len"]) == ("tiny", "model", 512)


def test_metrics_count_outcomes_and_times(live: Live, generator: ScriptedGenerator) -> None:
    httpx.post(live.url + COMPLETION, json={"prompt": "x", "max_tokens": 4})
    httpx.post(live.url + COMPLETION, json={"prompt": ""})
    generator.script = lambda _: [OverloadError("full")]
    httpx.post(live.url + COMPLETION, json={"prompt": "x"})
    text = httpx.get(live.url + "/metrics").text
    assert 'splitserve_requests_total{outcome="ok"} 1.0' in text
    assert 'splitserve_requests_total{outcome="refused"} 1.0' in text
    assert 'splitserve_requests_total{outcome="overload"} 1.0' in text
    assert "splitserve_ttft_seconds_count 1.0" in text
    assert "splitserve_itl_seconds_count 3.0" in text
    assert 'splitserve_itl_seconds_bucket{le="+Inf"} 3.0' in text


def test_the_clients_request_id_is_used_and_given_back(
    live: Live, generator: ScriptedGenerator
) -> None:
    answer = httpx.post(
        live.url + COMPLETION, json={"prompt": "x"}, headers={"x-request-id": "a-1"}
    )
    assert answer.headers["x-request-id"] == "a-1"
    assert answer.json()["id"] == "cmpl-a-1"
    assert generator.requests[0].request_id == "cmpl-a-1-0"


@pytest.mark.parametrize(("asked", "used"), [("a b#c/../é~\td", "abc..d"), ("x" * 500, "x" * 128)])
def test_an_unsafe_request_id_is_cleaned(live: Live, asked: str, used: str) -> None:
    headers = {"x-request-id": asked.encode()}
    answer = httpx.post(live.url + COMPLETION, json={"prompt": "x"}, headers=headers)
    assert answer.headers["x-request-id"] == used


@pytest.mark.parametrize("headers", [{}, {"x-request-id": ""}, {"x-request-id": "##"}])
def test_without_a_request_id_one_is_made(live: Live, headers: dict[str, str]) -> None:
    answer = httpx.post(live.url + COMPLETION, json={"prompt": "x"}, headers=headers)
    assert answer.headers["x-request-id"] == answer.json()["id"]


def test_errors_carry_the_request_id_too(live: Live) -> None:
    answer = httpx.post(live.url + COMPLETION, json={}, headers={"x-request-id": "a-1"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (400, "a-1")


def test_two_requests_with_one_id_do_not_meet(serve: Serve, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt("dog")
    gate: Gate = Gate()

    def script(request: GenerateRequest) -> Iterator[Step]:
        yield from chunks(ids, finish=None)
        if request.sampling.seed == 1:
            yield gate
        yield from chunks_after(len(ids))

    def chunks_after(begin: int) -> Iterator[Step]:
        for chunk in chunks([*ids, *ids], sizes=[begin]):
            if chunk.index == begin or chunk.index > begin:
                yield chunk

    generator = ScriptedGenerator(script)
    live = serve(generator)
    headers = {"x-request-id": "same"}
    with httpx.stream(
        "POST",
        live.url + COMPLETION,
        json={"prompt": "x", "seed": 1, "stream": True},
        headers=headers,
    ) as first:
        lines = first.iter_lines()
        assert "cmpl-same" in next(lines)
        httpx.post(live.url + COMPLETION, json={"prompt": "x", "seed": 2}, headers=headers)
        gate.set_result(None)
        assert "data: [DONE]" in list(lines)
    names = {request.request_id for request in generator.requests}
    assert len(names) == 2
    assert all(name.startswith("cmpl-same") for name in names)


def test_a_long_body_is_rendered_too(live: Live, tokenizer: Tokenizer) -> None:
    prompt = "dog " * 400 + "."
    assert len(tokenizer.encode_prompt(prompt)) < 512 <= len(prompt)
    answer = httpx.post(live.url + COMPLETION, json={"prompt": prompt, "metadata": "x" * 4096})
    assert answer.json()["usage"]["prompt_tokens"] == len(tokenizer.encode_prompt(prompt))
