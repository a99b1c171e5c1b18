"""Text to ids: BOS exactly once, bounds without tokenising, token bytes."""

from pathlib import Path

import pytest
from tokenizers import processors

from frontend.samples import byte_level_inner
from splitserve.errors import ConfigError
from splitserve.frontend.tokenizer import Tokenizer


def with_bos(*, add_bos: bool, post_processor: bool) -> Tokenizer:
    inner = byte_level_inner()
    if post_processor:
        inner.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))]
        )
    return Tokenizer(inner, bos_token="<s>", add_bos=add_bos)


@pytest.mark.parametrize(
    ("add_bos", "post_processor"), [(True, False), (False, True), (True, True)]
)
@pytest.mark.parametrize("text", ["hello", "<s>hello"])
def test_a_prompt_begins_with_bos_exactly_once(
    add_bos: bool, post_processor: bool, text: str
) -> None:
    tokenizer = with_bos(add_bos=add_bos, post_processor=post_processor)
    bos = tokenizer.inner.token_to_id("<s>")
    ids = tokenizer.encode_prompt(text)
    assert ids[0] == bos
    assert ids.count(bos) == 1
    assert tokenizer.decode(ids, skip_special=True) == "hello"


def test_a_model_without_bos_gets_none() -> None:
    tokenizer = with_bos(add_bos=False, post_processor=False)
    assert tokenizer.inner.token_to_id("<s>") not in tokenizer.encode_prompt("hello")


def test_bos_that_the_user_spells_twice_stays_where_the_model_adds_none() -> None:
    tokenizer = with_bos(add_bos=False, post_processor=False)
    bos = tokenizer.inner.token_to_id("<s>")
    assert tokenizer.encode_prompt("<s><s>a").count(bos) == 2


def test_a_rendered_chat_gets_no_bos_of_its_own() -> None:
    tokenizer = with_bos(add_bos=True, post_processor=True)
    assert tokenizer.inner.token_to_id("<s>") not in tokenizer.encode_rendered("hello")


def test_nothing_is_put_around_a_prompt_that_wants_nothing() -> None:
    tokenizer = with_bos(add_bos=True, post_processor=True)
    assert tokenizer.encode_prompt("hello", add_special=False) == tokenizer.encode_rendered("hello")


@pytest.mark.parametrize(
    ("add_bos", "post_processor"), [(True, False), (False, True), (True, True), (False, False)]
)
@pytest.mark.parametrize("text", ["hello", "<s>hello", ""])
def test_special_tokens_around_ids_are_those_around_a_prompt(
    add_bos: bool, post_processor: bool, text: str
) -> None:
    tokenizer = with_bos(add_bos=add_bos, post_processor=post_processor)
    ids = tokenizer.encode_rendered(text)
    assert tokenizer.with_special(ids) == tokenizer.encode_prompt(text)


def test_special_tokens_may_come_after_a_prompt_too() -> None:
    inner = byte_level_inner()
    ids = [(name, inner.token_to_id(name)) for name in ("<s>", "<|im_end|>")]
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A <|im_end|>", special_tokens=ids
    )
    tokenizer = Tokenizer(inner, bos_token="<s>")
    assert tokenizer.with_special(tokenizer.encode_rendered("hello")) == (
        tokenizer.encode_prompt("hello")
    )


@pytest.mark.parametrize("tokens", [1, 7, 100, 10_000])
def test_an_end_of_a_text_holds_its_last_tokens(tokenizer: Tokenizer, tokens: int) -> None:
    text = "The quick brown 한국어 fox <|im_end|> " * 300
    end = tokenizer.end_of(text, tokens)
    assert text.endswith(end)
    assert tokenizer.encode_rendered(end)[-tokens:] == tokenizer.encode_rendered(text)[-tokens:]


def test_the_lower_bound_never_exceeds_the_real_count(tokenizer: Tokenizer) -> None:
    for text in ("", "a", "The quick brown fox " * 50, "한국어 문장 " * 50, "<|im_start|>" * 9):
        assert tokenizer.fewest_tokens(text) <= len(tokenizer.encode_prompt(text))
    assert tokenizer.fewest_tokens("x" * 100_000) > 1000


def test_token_bytes_join_to_the_text(tokenizer: Tokenizer) -> None:
    text = "The lazy 한국어 <|im_end|> dog"
    ids = tokenizer.encode_prompt(text)
    assert b"".join(tokenizer.token_bytes(token_id) for token_id in ids) == text.encode()


def test_token_bytes_of_a_sentencepiece_vocabulary(fallback_tokenizer: Tokenizer) -> None:
    inner = fallback_tokenizer.inner
    found = {
        token: fallback_tokenizer.token_bytes(inner.token_to_id(token))
        for token in ("▁alpha", "mma", "é", "<0xED>")
    }
    assert found == {"▁alpha": b" alpha", "mma": b"mma", "é": "é".encode(), "<0xED>": b"\xed"}


def test_an_id_outside_the_vocabulary_is_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.vocab_size + 1) == b""


def test_padding_and_truncation_of_the_file_are_off(tmp_path: Path) -> None:
    inner = byte_level_inner()
    inner.enable_truncation(2)
    inner.enable_padding(length=8)
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    text = "The quick brown fox jumps"
    assert tokenizer.decode(tokenizer.encode_prompt(text), skip_special=False) == text


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]"])
def test_a_file_that_is_no_tokenizer_is_a_config_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "tokenizer.json")
