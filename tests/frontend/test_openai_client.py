"""The official client against a real server."""

import asyncio
from collections.abc import Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from frontend.conftest import Serve
from frontend.live import Live
from frontend.scripted import Gate, ScriptedGenerator, Step, chunks, saying
from splitserve.errors import OverloadError, TransferFailed, WorkerLost
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.generate import GenerateRequest, TokenLogprob

TEXT = "The lazy dog says 안녕 👋, ta ga."
MESSAGES = [{"role": "user", "content": "hello"}]


def client_of(live: Live) -> OpenAI:
    return OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def live(serve: Serve, tokenizer: Tokenizer) -> Live:
    return serve(ScriptedGenerator(saying(tokenizer.encode_prompt(TEXT))))


@pytest.fixture
def client(live: Live) -> Iterator[OpenAI]:
    with client_of(live) as client:
        yield client


def test_a_completion(client: OpenAI, tokenizer: Tokenizer) -> None:
    answer = client.completions.create(model="tiny", prompt="hello", max_tokens=100)
    assert answer.choices[0].text == TEXT
    assert answer.choices[0].finish_reason == "length"
    assert answer.object == "text_completion"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(tokenizer.encode_prompt("hello"))
    assert answer.usage.completion_tokens == len(tokenizer.encode_prompt(TEXT))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_completion(client: OpenAI) -> None:
    stream = client.completions.create(
        model="tiny",
        prompt="hello",
        max_tokens=100,
        stream=True,
        stream_options={"include_usage": True},
    )
    events = list(stream)
    assert "".join(event.choices[0].text for event in events[:-1]) == TEXT
    assert events[-2].choices[0].finish_reason == "length"
    assert events[-1].choices == []
    assert events[-1].usage is not None
    assert events[-1].usage.prompt_tokens_details is not None
    assert events[-1].usage.prompt_tokens_details.cached_tokens == 0
    assert [event.usage for event in events[:-1]] == [None] * (len(events) - 1)


def test_a_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].message.role == "assistant"
    assert answer.id.startswith("chatcmpl-")


def test_a_streamed_chat(client: OpenAI) -> None:
    events = list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(event.choices[0].delta.content or "" for event in events) == TEXT
    assert {event.id for event in events} == {events[0].id}


def test_the_stream_helper_of_the_client(serve: Serve, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt(TEXT + "<|im_end|>")
    with (
        client_of(serve(ScriptedGenerator(saying(ids, finish="stop")))) as client,
        client.chat.completions.stream(model="tiny", messages=MESSAGES) as stream,
    ):
        final = stream.get_final_completion()
    assert final.choices[0].message.content == TEXT


async def test_the_async_client_with_many_at_once(live: Live) -> None:
    async with AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:

        async def streamed() -> str:
            stream = await client.chat.completions.create(
                model="tiny", messages=MESSAGES, stream=True
            )
            return "".join([event.choices[0].delta.content or "" async for event in stream])

        assert await asyncio.gather(*(streamed() for _ in range(32))) == [TEXT] * 32


def test_n_answers_in_order_and_in_a_stream(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.message.content for choice in answer.choices] == [TEXT] * 3
    texts = ["", "", ""]
    for event in client.chat.completions.create(model="tiny", messages=MESSAGES, n=3, stream=True):
        texts[event.choices[0].index] += event.choices[0].delta.content or ""
    assert texts == [TEXT] * 3


def test_usage_counts_a_prompt_once_however_many_answers_it_gets(
    client: OpenAI, tokenizer: Tokenizer
) -> None:
    answer = client.completions.create(model="tiny", prompt=["fox", "dog jumps"], n=2, max_tokens=3)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(
        len(tokenizer.encode_prompt(text)) for text in ("fox", "dog jumps")
    )
    assert answer.usage.completion_tokens == 4 * 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_answer_and_aborts_the_request(
    serve: Serve, tokenizer: Tokenizer, stream: bool
) -> None:
    generator = ScriptedGenerator(saying(tokenizer.encode_prompt(TEXT)))
    with client_of(serve(generator)) as client:
        if stream:
            events = list(
                client.completions.create(
                    model="tiny", prompt="x", max_tokens=99, stop=["lazy", "zz"], stream=True
                )
            )
            text = "".join(event.choices[0].text for event in events)
            choice = events[-1].choices[0]
        else:
            choice = client.completions.create(
                model="tiny", prompt="x", max_tokens=99, stop=["lazy", "zz"]
            ).choices[0]
            text = choice.text
    assert text == "The "
    assert choice.finish_reason == "stop"
    assert choice.model_extra == {"stop_reason": "lazy"}
    assert generator.ended.get(timeout=10)[1] == "closed"


def test_an_answer_that_ends_by_itself_is_not_aborted(serve: Serve, tokenizer: Tokenizer) -> None:
    generator = ScriptedGenerator(saying(tokenizer.encode_prompt(TEXT), finish="stop"))
    with client_of(serve(generator)) as client:
        answer = client.completions.create(model="tiny", prompt="x", max_tokens=99)
    assert answer.choices[0].finish_reason == "stop"
    assert generator.ended.get(timeout=10) == (f"{answer.id}-0", "complete")


def test_logprobs(serve: Serve, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt("dog 안")
    scores = [
        TokenLogprob(token_id, -float(place), 1, ((token_id, -float(place)), (9, -50.0)))
        for place, token_id in enumerate(ids)
    ]

    def script(request: GenerateRequest) -> Iterator[Step]:
        assert request.sampling.logprobs == 2
        yield from chunks(ids, sizes=[3], logprobs=scores)

    with client_of(serve(ScriptedGenerator(script))) as client:
        chat = client.chat.completions.create(
            model="tiny", messages=MESSAGES, logprobs=True, top_logprobs=2
        )
        logprobs = chat.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        raw = b"".join(bytes(entry.bytes or []) for entry in logprobs.content)
        assert raw.decode() == "dog 안"
        assert [entry.logprob for entry in logprobs.content] == [score.logprob for score in scores]
        assert [len(entry.top_logprobs) for entry in logprobs.content] == [2] * len(ids)
        plain = client.completions.create(model="tiny", prompt="x", logprobs=2, max_tokens=99)
        found = plain.choices[0].logprobs
        assert found is not None
        assert found.text_offset is not None
        assert found.text_offset[0] == 0
        assert found.token_logprobs == [score.logprob for score in scores]


def test_echo_and_token_ids(client: OpenAI, tokenizer: Tokenizer) -> None:
    answer = client.completions.create(
        model="tiny",
        prompt="fox ",
        echo=True,
        max_tokens=4,
        extra_body={"return_token_ids": True},
    )
    ids = tokenizer.encode_prompt(TEXT)[:4]
    choice = answer.choices[0]
    assert choice.text == "fox " + tokenizer.decode(ids, skip_special=True)
    assert choice.model_extra is not None
    assert choice.model_extra["token_ids"] == list(ids)
    assert choice.model_extra["prompt_token_ids"] == list(tokenizer.encode_prompt("fox "))


def test_a_seed_reaches_the_workers(serve: Serve, tokenizer: Tokenizer) -> None:
    generator = ScriptedGenerator(saying(tokenizer.encode_prompt("x")))
    with client_of(serve(generator)) as client:
        client.completions.create(model="tiny", prompt="x", seed=11, n=2)
    assert sorted(request.sampling.seed for request in generator.requests) == [11, 12]


def test_models_are_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other/model")


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt", messages=MESSAGES)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (OverloadError("queue is full", retry_after_s=2.5), openai.RateLimitError, 429),
        (OverloadError("no workers", status=503), openai.InternalServerError, 503),
        (WorkerLost("decode-0 at /run/x.sock"), openai.InternalServerError, 503),
        (TransferFailed("blocks 1-7"), openai.InternalServerError, 502),
        (RuntimeError("secret detail"), openai.InternalServerError, 500),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_before_the_first_token_have_their_status(
    serve: Serve, error: Exception, kind: type[openai.APIStatusError], status: int, stream: bool
) -> None:
    live = serve(ScriptedGenerator(lambda _: [error]))
    with client_of(live) as client, pytest.raises(kind) as caught:
        client.completions.create(model="tiny", prompt="x", stream=stream)
    assert caught.value.status_code == status
    assert "secret" not in str(caught.value)
    assert "sock" not in str(caught.value)
    retry_after = caught.value.response.headers.get("retry-after")
    expected = {429: "3", 503: "1"}.get(status)
    assert retry_after == expected


def test_an_error_after_the_first_token_ends_the_stream_as_an_error(
    serve: Serve, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode_prompt(TEXT)

    def script(request: GenerateRequest) -> Iterator[Step]:
        yield from chunks(ids[:3], finish=None)
        yield WorkerLost("decode-0")

    with client_of(serve(ScriptedGenerator(script))) as client:
        stream = client.completions.create(model="tiny", prompt="x", stream=True)
        seen = [next(stream).choices[0] for _ in range(3)]
        with pytest.raises(openai.APIError, match="worker was lost"):
            next(stream)
    assert "".join(choice.text for choice in seen) == tokenizer.decode(ids[:3], skip_special=True)
    assert {choice.finish_reason for choice in seen} == {None}


def test_an_answer_that_just_stops_is_an_error(serve: Serve, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt(TEXT)
    live = serve(ScriptedGenerator(lambda _: chunks(ids[:3], finish=None)))
    with client_of(live) as client, pytest.raises(openai.InternalServerError):
        client.completions.create(model="tiny", prompt="x")


def test_one_failing_choice_aborts_its_siblings(serve: Serve, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_prompt(TEXT)

    def script(request: GenerateRequest) -> Iterator[Step]:
        yield from chunks(ids[:2], finish=None)
        yield TransferFailed("x") if request.request_id.endswith("-1") else Gate()

    generator = ScriptedGenerator(script)
    with client_of(serve(generator)) as client, pytest.raises(openai.InternalServerError):
        client.completions.create(model="tiny", prompt="x", n=3)
    ended = dict(generator.ended.get(timeout=10) for _ in range(3))
    assert sorted(ended.values()) == ["closed", "closed", "failed"]
