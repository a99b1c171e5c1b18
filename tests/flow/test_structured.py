"""Answers held to a form, by real processes with random weights: split over two workers, whole."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from client import body
from cluster import Cluster, running
from tiny_model import make_model_folder

NATIVE = ("--dtype", "float32", "--kv-cache-memory-bytes", "64MiB")
POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": -99, "maximum": 99},
        "name": {"enum": ["left", "right"]},
        "more": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["x", "name", "more"],
    "additionalProperties": False,
}
AS_SCHEMA = {"type": "json_schema", "json_schema": {"name": "point", "schema": POINT}}
PROMPT = [50, 60, 70, 80, 90, 100, 110, 120, 130]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny folder with weights: what it writes makes no sense, so only the form holds it."""
    import torch
    import transformers

    folder = make_model_folder(tmp_path_factory.mktemp("random") / "random")
    config = transformers.LlamaConfig(**json.loads((folder / "config.json").read_text()))
    torch.manual_seed(5)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def split(model: str) -> Iterator[Cluster]:
    with running(model, [("prefill", "p0"), ("decode", "d0")], NATIVE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(model: str) -> Iterator[Cluster]:
    with running(model, [("colocated", "c0")], NATIVE) as cluster:
        yield cluster


def choice_of(cluster: Cluster, **fields: Any) -> dict[str, Any]:
    how = {"temperature": 1.0, "seed": 7, **fields}
    answer = httpx.post(
        f"{cluster.url}/v1/completions", json=body(cluster, PROMPT, 1000, **how), timeout=60
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["choices"][0])


def assert_point(text: str) -> None:
    point = json.loads(text)
    assert list(point) == ["x", "name", "more"]
    assert -99 <= point["x"] <= 99
    assert point["name"] in ("left", "right")
    assert set(map(type, point["more"])) <= {bool}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_split_answer_conforms_and_is_the_unsplit_one(
    split: Cluster, whole: Cluster, seed: int
) -> None:
    ours = choice_of(split, response_format=AS_SCHEMA, seed=seed)
    assert_point(ours["text"])
    assert ours["finish_reason"] == "stop"
    assert ours["token_ids"] == choice_of(whole, response_format=AS_SCHEMA, seed=seed)["token_ids"]
    split.assert_settles()


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"structured_outputs": {"choice": ["left", "right"]}}, {"left", "right"}),
        ({"guided_choice": ["left", "right"]}, {"left", "right"}),
        ({"guided_regex": "(ab){3}c?"}, {"ababab", "abababc"}),
        ({"structured_outputs": {"grammar": 'root ::= "a" [xy] "!"'}}, {"ax!", "ay!"}),
    ],
)
def test_every_kind_of_constraint_reaches_the_tokens(
    split: Cluster, fields: dict[str, Any], texts: set[str]
) -> None:
    assert choice_of(split, **fields)["text"] in texts


def test_a_chat_streams_what_conforms(split: Cluster) -> None:
    request = {
        "model": split.served,
        "messages": [{"role": "user", "content": "where"}],
        "response_format": AS_SCHEMA,
        "temperature": 1.0,
        "seed": 5,
        "max_tokens": 1000,
        "stream": True,
    }
    text = ""
    with httpx.stream(
        "POST", f"{split.url}/v1/chat/completions", json=request, timeout=60
    ) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
    assert_point(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_regex": "(["},
        {"guided_regex": "(a+){1000000}"},
        {"guided_json": {"type": "something"}},
        {"guided_json": {"type": "string", "pattern": "(["}},
        {"guided_json": {"$ref": "#"}},
        {"guided_json": {"type": "array", "uniqueItems": True}},
        {"guided_json": '{"items":' * 10_000 + "{}" + "}" * 10_000},
        {"guided_grammar": 'root ::= "a'},
        {"guided_choice": []},
    ],
)
def test_a_constraint_that_cannot_be_served_is_a_400_and_harms_nobody(
    split: Cluster, fields: dict[str, Any]
) -> None:
    answer = httpx.post(
        f"{split.url}/v1/completions", json=body(split, PROMPT, 8, **fields), timeout=30
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(fields))
    assert all(worker.alive for worker in split.workers.values())
    assert choice_of(split, guided_choice=["left"])["text"] == "left"


def test_an_answer_that_moves_to_another_worker_is_held_to_the_same(model: str) -> None:
    """The decode worker dies; what it had sent is computed again elsewhere and continued."""
    fields = {"structured_outputs": {"regex": "(ab){400}"}, "stream": True}
    with running(model, [("prefill", "p0"), ("decode", "d0")], NATIVE) as cluster:
        text, url = "", f"{cluster.url}/v1/completions"
        with httpx.stream("POST", url, json=body(cluster, PROMPT, 1000, **fields), timeout=60) as r:
            for line in r.iter_lines():
                if not line.startswith("data: {"):
                    continue
                text += json.loads(line[6:])["choices"][0]["text"]
                if len(text) > 20 and cluster.workers["d0"].alive:
                    cluster.workers["d0"].kill()
        assert text == "ab" * 400
        cluster.assert_settles()
