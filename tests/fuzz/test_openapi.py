"""Requests made from the served OpenAPI document: none of them is ever the server's fault."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from security.served import Served, serving
from splitserve.frontend.scale_out.openapi import CALLS

EXAMPLES = 10
"""Of each path."""

CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]

LIMITS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@schemathesis.serializer("application/x-ndjson")
def as_line(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """The one line that opens a session."""
    return dumped(value) + b"\n"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def document(gateway: Served) -> dict[str, Any]:
    answer = httpx.get(f"{gateway.url}/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("path", sorted(CALLS))
def test_no_request_that_the_document_allows_or_forbids_is_a_server_error(
    gateway: Served, document: dict[str, Any], path: str
) -> None:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=gateway.url)
    operation = schema[path]["POST"]

    @given(case=operation.as_strategy())
    @LIMITS
    def asked(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    asked()
    still_serves(gateway)


@pytest.mark.parametrize("path", sorted(path for path in CALLS if CALLS[path].example))
def test_the_documents_examples_are_no_nonsense(
    gateway: Served, document: dict[str, Any], path: str
) -> None:
    (content,) = document["paths"][path]["post"]["requestBody"]["content"].values()
    answer = httpx.post(gateway.url + path, json=content["example"])
    assert answer.status_code == 200, answer.text


def test_it_is_an_openapi_document_with_every_path(
    gateway: Served, document: dict[str, Any]
) -> None:
    assert document["openapi"].startswith("3.1")
    posts = {path for path, item in document["paths"].items() if "post" in item}
    assert posts == set(CALLS)
    for path in {"/health", "/ready", "/metrics", "/version", "/v1/models", "/fingerprint"}:
        assert set(document["paths"][path]) == {"get"}
    names = set(document["components"]["schemas"])
    assert {"ErrorBody", "ChatRequest", "CompletionRequest", "ResponsesRequest"} <= names
    assert references(document) <= names


def references(value: Any) -> set[str]:
    """Names of all schemas that ``value`` refers to."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    found = set().union(*map(references, value.values()))
    if isinstance(value.get("$ref"), str):
        found.add(value["$ref"].removeprefix("#/components/schemas/"))
    return found


FIELDS = (
    *("prompt", "messages", "input", "tools", "stop", "logit_bias", "n", "seed", "text"),
    *("response_format", "structured_outputs", "stream_options", "chat_template_kwargs"),
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["messages", "prompt", "role", "content", "tools", "n", "stop", "type"])
            | st.text(max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(path=st.sampled_from(sorted(CALLS)), body=st.binary(max_size=300))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_bytes_are_a_server_error(client: httpx.Client, path: str, body: bytes) -> None:
    is_refused_or_answered(client.post(path, content=body))


@given(path=st.sampled_from(sorted(CALLS)), body=st.dictionaries(st.text(max_size=8), JSON) | JSON)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_json_is_a_server_error(client: httpx.Client, path: str, body: Any) -> None:
    is_refused_or_answered(client.post(path, content=dumped(body)))


@given(
    path=st.sampled_from(["/v1/completions", "/v1/chat/completions", "/v1/responses"]),
    field=st.sampled_from(FIELDS),
    value=JSON,
)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_field_of_a_good_request_makes_it_a_server_error(
    client: httpx.Client, path: str, field: str, value: Any
) -> None:
    body = {**CALLS[path].example, field: value}
    is_refused_or_answered(client.post(path, content=dumped(body)))


@pytest.fixture(scope="module")
def client(gateway: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url) as found:
        yield found


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def is_refused_or_answered(answer: httpx.Response) -> None:
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def still_serves(gateway: Served) -> None:
    answer = httpx.post(f"{gateway.url}/v1/completions", json={"prompt": "x"})
    assert answer.json()["choices"][0]["text"] == "fine"
