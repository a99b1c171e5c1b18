"""Grammars are built once, kept in bounds, and refused where they cannot be built."""

import json
import os
from typing import Any

import psutil
import pytest

from small_tokenizer import CONTROL, NAMES, ids_of, tokenizer_json
from splitserve.engine.grammar.store import MAX_GRAMMARS, Grammars
from splitserve.errors import CallerError
from splitserve.protocol.sampling import StructuredOutputs

EOS = 2


def grammars(vocab_size: int = 96, eos: tuple[int, ...] = (EOS,)) -> Grammars:
    return Grammars(lambda: tokenizer_json(len(NAMES)), vocab_size, eos)


def first_ids(store: Grammars, structured: StructuredOutputs) -> set[int]:
    mask = store.matcher(structured, (EOS,)).mask()
    assert mask is not None
    return {token for token in range(8 * len(mask)) if mask[token // 8] >> token % 8 & 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"json": '{"type":"something"}'},
        {"json": '{"$ref":"#"}'},
        {"regex": "(["},
        {"grammar": 'root ::= "a'},
        {"choice": ()},
        {"regex": "a", "think_open": True},
        {"regex": "a", "think_begin": (5,)},
        {"regex": "a", "think_end": (96,)},
        {"regex": "a", "think_end": (-1,)},
        {},
    ],
)
def test_what_cannot_be_built_is_refused_and_does_no_harm(fields: dict[str, Any]) -> None:
    store = grammars()
    for _ in range(2):
        with pytest.raises(CallerError) as caught:
            store.check(StructuredOutputs(**fields))
        assert caught.value.param == "structured_outputs"
    assert first_ids(store, StructuredOutputs(regex="a")) == set(ids_of("a"))


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "no such file", '{"model": null}'])
def test_without_a_usable_tokenizer_every_constraint_is_refused(text: str | None) -> None:
    calls = 0

    def read() -> str | None:
        nonlocal calls
        calls += 1
        return text

    store = Grammars(read, 96, (EOS,))
    for _ in range(2):
        with pytest.raises(CallerError, match="tokenizer"):
            store.check(StructuredOutputs(regex="a"))
    assert calls == 1


def test_the_tokenizer_is_not_read_before_it_is_needed() -> None:
    def read() -> str | None:
        raise AssertionError("read too early")

    Grammars(read, 96, (EOS,))


@pytest.mark.parametrize("vocab_size", [64, len(NAMES), 96, 128, 1000])
def test_masks_have_the_models_size_whatever_the_tokenizers(vocab_size: int) -> None:
    store = grammars(vocab_size)
    mask = store.matcher(StructuredOutputs(regex="."), (EOS,)).mask()
    assert mask is not None
    assert len(mask) == -(-vocab_size // 8)
    found = first_ids(store, StructuredOutputs(regex="."))
    one_byte = {number for number, name in enumerate(NAMES[3:], 3) if len(name) == 1}
    assert found <= one_byte
    assert found >= {number for number in one_byte if number < vocab_size and NAMES[number] != "Ċ"}


def test_of_a_model_that_names_no_end_an_answer_ends_all_the_same() -> None:
    matcher = grammars(eos=()).matcher(StructuredOutputs(regex="a"), ())
    matcher.accept(*ids_of("a"))
    mask = matcher.mask()
    assert mask is not None
    (end,) = (token for token in range(96) if mask[token // 8] >> token % 8 & 1)
    assert end < len(CONTROL)
    matcher.accept(end)
    assert matcher.done


def test_control_tokens_of_a_structural_tag_are_tokens_and_not_text() -> None:
    tag = {
        "structures": [{"begin": "<s>12", "schema": {"type": "integer"}, "end": "</s>"}],
        "triggers": ["<s>"],
    }
    matcher = grammars().matcher(StructuredOutputs(structural_tag=json.dumps(tag)), (EOS,))
    begin, end = CONTROL.index("<s>"), CONTROL.index("</s>")
    for token in [*ids_of("ab "), begin, *ids_of("12"), *ids_of("7")]:
        matcher.accept(token)
    mask = matcher.mask()
    assert mask is not None
    assert mask[end // 8] >> end % 8 & 1


def test_requests_that_differ_in_their_reasoning_share_a_grammar() -> None:
    store = grammars()
    store.check(StructuredOutputs(regex="a"))
    store.check(StructuredOutputs(regex="a", think_end=(5,), think_open=True))
    assert store.kept == 1
    store.forget(StructuredOutputs(regex="a", think_end=(7,)))
    assert store.kept == 0


def unique(number: int) -> StructuredOutputs:
    schema = {"type": "object", "properties": {f"p{number}": {"type": "string"}}}
    return StructuredOutputs(json=json.dumps(schema))


def test_thousands_of_schemas_take_bounded_memory_and_leave_no_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    process = psutil.Process(os.getpid())
    store = grammars()
    for number in range(500):
        store.matcher(unique(number), (EOS,)).mask()
    settled = process.memory_info().rss
    files = {entry.path for entry in process.open_files()}
    for number in range(500, 2000):
        store.matcher(unique(number), (EOS,)).mask()
    assert store.kept == MAX_GRAMMARS
    assert process.memory_info().rss - settled < 20_000_000
    assert {entry.path for entry in process.open_files()} == files
    assert list(tmp_path.iterdir()) == []
