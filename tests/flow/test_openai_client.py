"""The official client against the demo model in two processes."""

from collections.abc import Iterator

import openai
import pytest
from cluster import Cluster, running

from reference_model import demo_model_folder

pytestmark = pytest.mark.model

QUESTION = [{"role": "user", "content": "What is the capital of France, and what is it known for?"}]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    flags = ("--dtype", "float32", "--kv-cache-memory-bytes", "100MiB")
    roles = [("prefill", "p0"), ("decode", "d0")]
    with running(str(demo_model_folder()), roles, flags) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{cluster.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_chat_whole_and_streamed(client: openai.OpenAI, cluster: Cluster) -> None:
    request = {"model": cluster.served, "messages": QUESTION, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**request)
    text = whole.choices[0].message.content
    assert text is not None
    assert "Paris" in text
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 24
    assert whole.choices[0].finish_reason == "length"
    with client.chat.completions.create(**request, stream=True) as stream:
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(pieces) == text
    assert sum(bool(piece) for piece in pieces) > 10
    cluster.assert_settles()


def test_a_stop_string_ends_the_answer_everywhere(client: openai.OpenAI, cluster: Cluster) -> None:
    answer = client.chat.completions.create(
        model=cluster.served, messages=QUESTION, max_tokens=400, temperature=0, stop=["Paris"]
    )
    assert answer.choices[0].finish_reason == "stop"
    assert "Paris" not in (answer.choices[0].message.content or "")
    cluster.assert_settles()


def test_bad_requests_raise_what_the_client_knows(client: openai.OpenAI, cluster: Cluster) -> None:
    with pytest.raises(openai.NotFoundError, match="model"):
        client.chat.completions.create(model="no-such", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="context"):
        client.completions.create(model=cluster.served, prompt=[100] * 9000, max_tokens=1)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model=cluster.served, prompt="a", temperature=-1)
