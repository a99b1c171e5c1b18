import dataclasses
import itertools
import tempfile
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
from gguf_samples import (
    NORMAL,
    USER_DEFINED,
    Vocabulary,
    byte_level_vocabulary,
    sentencepiece_vocabulary,
    write_gguf,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from text_samples import varied_texts
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from splitserve.errors import ConfigError
from splitserve.modelstore.gguf_header import read_header
from splitserve.modelstore.gguf_tokenizer import (
    build_tokenizer,
    build_tokenizer_config,
    end_token_ids,
)

DEEPSEEK_END = "<\uff5cend\u2581of\u2581sentence\uff5c>"
SPECIAL = ("<|endoftext|>", "<|im_end|>", "<think>")


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "tekken", "gpt-4o", "dbrx", "qwen2"])
def test_byte_level_ids_equal_transformers_reading_of_the_same_file(
    tmp_path: Path, pre: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", vocabulary=byte_level_vocabulary(pre))
    ours = build_tokenizer(read_header(path))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")

    for text in varied_texts(300, special=SPECIAL):
        if pre == "qwen2":
            # transformers leaves out the Unicode form that Qwen's own tokenizer.json asks for.
            text = unicodedata.normalize("NFC", text)
        assert (
            ours.encode(text, add_special_tokens=False).ids
            == theirs(text, add_special_tokens=False)["input_ids"]
        ), text


@pytest.mark.parametrize(
    ("pre", "text", "words"),
    [
        ("gpt-2", "a  12 b", ["a", "Ġ", "Ġ12", "Ġb"]),
        ("smollm", "a  12 b", ["a", "ĠĠ", "1", "2", "Ġb"]),
        ("llama-bpe", "a  1234 b", ["a", "Ġ", "Ġ", "123", "4", "Ġb"]),
        ("qwen2", "a  12 b", ["a", "Ġ", "Ġ", "1", "2", "Ġb"]),
        ("default", "a, 1234", ["a", ",", "Ġ", "123", "4"]),
        ("gpt-4o", "parseHTML don't", ["parse", "HTML", "Ġdon't"]),
        ("tekken", "don't 12/\n", ["don", "'t", "Ġ", "1", "2", "/Ċ"]),
    ],
)
def test_each_name_cuts_text_its_own_way(
    tmp_path: Path, pre: str, text: str, words: list[str]
) -> None:
    path = write_gguf(tmp_path / "m.gguf", vocabulary=byte_level_vocabulary(pre))
    tokenizer = build_tokenizer(read_header(path))

    assert [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == words


def test_qwen_text_is_put_into_form_c(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", vocabulary=byte_level_vocabulary("qwen2"))
    tokenizer = build_tokenizer(read_header(path))

    assert tokenizer.encode("e\u0301").ids == tokenizer.encode("\u00e9").ids


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40))
def test_byte_level_text_survives_the_way_there_and_back(text: str) -> None:
    tokenizer = _cached("byte")

    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_characters="\u2581", exclude_categories=["Cs"])))
def test_sentencepiece_text_survives_the_way_there_and_back(text: str) -> None:
    tokenizer = _cached("sentencepiece")

    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


@settings(max_examples=100, deadline=None)
@given(
    text=st.one_of(
        st.text(st.sampled_from("abcdeinorst .,()\n_=é日🙂"), min_size=1, max_size=30),
        st.sampled_from(varied_texts(200)),
    )
)
def test_sentencepiece_ids_are_those_of_merging_the_best_pair_first(text: str) -> None:
    vocabulary = _vocabulary("sentencepiece")

    ids = _cached("sentencepiece").encode(text, add_special_tokens=False).ids

    assert ids == _merge_best_first(vocabulary, "\u2581" + text.replace(" ", "\u2581"))


def test_sentencepiece_ids_equal_transformers_reading_of_the_same_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", vocabulary=sentencepiece_vocabulary())
    ours = build_tokenizer(read_header(path))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")

    for text in varied_texts(300):
        # transformers drops the space before text that starts with one; sentencepiece does not.
        text = "x" + text
        assert ours.encode(text).ids == theirs(text)["input_ids"], text


def test_sentencepiece_without_prefix_space_adds_none(tmp_path: Path) -> None:
    words = sentencepiece_vocabulary(add_space_prefix=False)
    tokenizer = build_tokenizer(read_header(write_gguf(tmp_path / "m.gguf", vocabulary=words)))

    ids = tokenizer.encode("a b", add_special_tokens=False).ids

    assert tokenizer.id_to_token(ids[0]) == "a"
    assert tokenizer.decode(ids) == "a b"


def test_control_tokens_are_special_and_user_defined_ones_are_not(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(read_header(write_gguf(tmp_path / "m.gguf")))

    ids = tokenizer.encode("a<think>b<|im_end|>").ids

    assert tokenizer.token_to_id("<think>") in ids
    assert tokenizer.token_to_id("<|im_end|>") in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a<think>b"


def test_control_tokens_outside_the_byte_alphabet_stay_whole(tmp_path: Path) -> None:
    words = byte_level_vocabulary()
    tokens = [DEEPSEEK_END, *words.tokens[1:]]
    changed = dataclasses.replace(words, tokens=tokens)
    tokenizer = build_tokenizer(read_header(write_gguf(tmp_path / "m.gguf", vocabulary=changed)))

    assert tokenizer.encode(DEEPSEEK_END).ids == [0]


@pytest.mark.parametrize(
    ("vocabulary", "starts_with_bos"),
    [
        (byte_level_vocabulary("smollm"), False),
        (byte_level_vocabulary("llama-bpe"), True),
        (sentencepiece_vocabulary(), True),
        (sentencepiece_vocabulary(add_bos_token=False), False),
    ],
)
def test_the_first_token_is_bos_where_the_family_or_the_file_wants_it(
    tmp_path: Path, vocabulary: Vocabulary, starts_with_bos: bool
) -> None:
    header = read_header(write_gguf(tmp_path / "m.gguf", vocabulary=vocabulary))

    ids = build_tokenizer(header).encode("a").ids

    assert (ids[0] == vocabulary.ids["bos"]) is starts_with_bos
    assert build_tokenizer_config(header)["add_bos_token"] is starts_with_bos


def test_eos_follows_the_prompt_where_the_file_wants_it(tmp_path: Path) -> None:
    words = sentencepiece_vocabulary(add_eos_token=True)
    tokenizer = build_tokenizer(read_header(write_gguf(tmp_path / "m.gguf", vocabulary=words)))

    ids = tokenizer.encode("a").ids

    assert (ids[0], ids[-1]) == (1, 2)


def test_special_tokens_and_template_are_written_as_text(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_chat_template("{{ messages }}")

    config = build_tokenizer_config(read_header(write_gguf(tmp_path / "m.gguf", change=change)))

    assert config["bos_token"] == "<|endoftext|>"
    assert config["eos_token"] == "<|im_end|>"
    assert config["chat_template"] == "{{ messages }}"
    assert "unk_token" not in config


def test_several_templates_become_a_list_of_names(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_chat_template(
            [
                {"name": "default", "template": "plain"},
                {"name": "tool_use", "template": "with tools"},
            ]
        )

    config = build_tokenizer_config(read_header(write_gguf(tmp_path / "m.gguf", change=change)))

    assert config["chat_template"] == [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "with tools"},
    ]


def test_answers_end_at_every_end_token_the_files_own_first(tmp_path: Path) -> None:
    assert end_token_ids(read_header(write_gguf(tmp_path / "m.gguf"))) == [1, 0]


def test_an_end_of_turn_id_ends_answers_too(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_uint32("tokenizer.ggml.eot_token_id", 7)

    path = write_gguf(tmp_path / "m.gguf", change=change, vocabulary=sentencepiece_vocabulary())

    assert end_token_ids(read_header(path)) == [2, 7]


_GOOD = byte_level_vocabulary()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "rwkv"}, "tokenizer 'rwkv' is not supported: give a Hugging Face folder"),
        ({"pre": "someones-own"}, "pre-tokenizer 'someones-own' is not supported"),
        ({"pre": None}, "pre-tokenizer None is not supported"),
        ({"merges": ["no such"]}, "merge 'no such' is not made of tokens"),
        ({"tokens": ["!"] * len(_GOOD.tokens)}, "two tokens have the same text"),
        ({"types": [1, 2]}, "lacks the types of its tokens"),
        ({"model": "llama"}, "lacks the scores of its tokens"),
        ({"ids": {"bos": 10**6}, "flags": {"add_bos_token": True}}, "is not in the vocabulary"),
    ],
)
def test_a_tokenizer_that_cannot_be_made_right_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    words = dataclasses.replace(_GOOD, **changes)
    path = write_gguf(tmp_path / "m.gguf", vocabulary=words)

    with pytest.raises(ConfigError, match=message):
        build_tokenizer(read_header(path))


@cache
def _vocabulary(kind: str) -> Vocabulary:
    return byte_level_vocabulary() if kind == "byte" else sentencepiece_vocabulary()


@cache
def _cached(kind: str) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        path = write_gguf(Path(folder) / "m.gguf", vocabulary=_vocabulary(kind))
        return build_tokenizer(read_header(path))


def _merge_best_first(vocabulary: Vocabulary, text: str) -> list[int]:
    """Sentencepiece's rule, slow and plain: join the neighbours with the best score, leftmost."""
    score = {
        token: (value, index)
        for index, (token, type_, value) in enumerate(
            zip(vocabulary.tokens, vocabulary.types, vocabulary.scores, strict=True)
        )
        if type_ in (NORMAL, USER_DEFINED)
    }
    pieces = list(text)
    while True:
        joined = [
            (-score[a + b][0], place)
            for place, (a, b) in enumerate(itertools.pairwise(pieces))
            if a + b in score and a in score and b in score
        ]
        if not joined:
            break
        _, place = min(joined)
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
    ids: list[int] = []
    for piece in pieces:
        if piece in score:
            ids.append(score[piece][1])
        else:
            ids += [3 + byte for byte in piece.encode()]
    return ids
