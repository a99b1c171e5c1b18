"""Joined pieces equal the one-shot decode, and no piece shows half a character."""

from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.samples import byte_fallback_inner, byte_level_inner
from splitserve.frontend.derender.detokenize import detokenizer
from splitserve.frontend.tokenizer import Tokenizer

BYTE_LEVEL = Tokenizer(byte_level_inner())
FALLBACK = Tokenizer(byte_fallback_inner())
FALLBACK_BYTE = 1  # id of <0x00>

TEXTS = (
    "cafe\u0301 naïve",
    "한국어 문장을 토큰으로 나누어도 글자가 깨지지 않아야 한다.",
    "日本語の文章と中文的句子。",
    "👨‍👩‍👧‍👦 and 🇩🇪 flags",
    "line\r\nbreak \x00 nul \u2028 separator \u0085",
    "\ufeffbyte order mark",
)


def pieces(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    state = detokenizer(tokenizer, skip_special=skip_special)
    return [*(state.feed(token_id) for token_id in ids), state.finish()]


def byte_ids(raw: bytes) -> list[int]:
    """One token a byte, whatever characters the bytes make."""
    single = {BYTE_LEVEL.token_bytes(i): i for i in range(BYTE_LEVEL.vocab_size)}
    return [single[bytes([byte])] for byte in raw]


def test_text_of_many_scripts_survives_one_token_a_byte() -> None:
    for text in TEXTS:
        shown = pieces(BYTE_LEVEL, byte_ids(text.encode()))
        assert "".join(shown) == text
        assert not any("\ufffd" in piece for piece in shown)


@given(st.text(max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_text_survives_its_tokens(text: str) -> None:
    ids = list(BYTE_LEVEL.encode_prompt(text))
    assert "".join(pieces(BYTE_LEVEL, ids, skip_special=False)) == text


@given(st.lists(st.integers(0, BYTE_LEVEL.vocab_size + 5), max_size=40), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_ids_give_what_a_one_shot_decode_gives(ids: list[int], skip_special: bool) -> None:
    joined = "".join(pieces(BYTE_LEVEL, ids, skip_special=skip_special))
    assert joined == BYTE_LEVEL.decode(ids, skip_special=skip_special)


def test_an_invalid_byte_is_one_replacement_character_and_does_not_stall() -> None:
    ids = byte_ids(b"a\xffb")
    assert pieces(BYTE_LEVEL, ids) == ["a", "\ufffd", "b", ""]


def test_half_a_character_at_the_end_is_flushed_as_a_one_shot_decode_does() -> None:
    ids = byte_ids("a한".encode()[:-1])
    assert pieces(BYTE_LEVEL, ids) == ["a", "", "", "\ufffd"]
    assert BYTE_LEVEL.decode(ids, skip_special=True) == "a\ufffd"


def test_special_tokens_show_only_when_asked_for() -> None:
    ids = list(BYTE_LEVEL.encode_prompt("a<|im_end|>b"))
    assert "".join(pieces(BYTE_LEVEL, ids)) == "ab"
    assert "".join(pieces(BYTE_LEVEL, ids, skip_special=False)) == "a<|im_end|>b"


def fallback_ids(*tokens: str) -> list[int]:
    found = [FALLBACK.inner.token_to_id(token) for token in tokens]
    assert None not in found
    return found


def fallback_bytes(raw: bytes) -> list[int]:
    return [FALLBACK_BYTE + byte for byte in raw]


def test_word_boundaries_of_sentencepiece_become_spaces_but_for_the_first() -> None:
    ids = fallback_ids("▁alpha", "▁beta", "▁ga", "mma")
    assert pieces(FALLBACK, ids) == ["alpha", " beta", " ga", "mma", ""]


def test_byte_fallback_characters_appear_whole() -> None:
    ids = [*fallback_ids("▁the"), *fallback_bytes("한👍".encode()), *fallback_ids("▁beta")]
    shown = pieces(FALLBACK, ids)
    assert "".join(shown) == "the한👍 beta"
    assert not any("\ufffd" in piece for piece in shown)


def test_a_byte_that_fits_nothing_does_not_lose_the_text_after_it() -> None:
    ids = [*fallback_bytes("한".encode()), *fallback_bytes(b"\xff"), *fallback_ids("▁beta", "▁ga")]
    joined = "".join(pieces(FALLBACK, ids))
    assert joined.startswith("한")
    assert joined.endswith("\ufffd beta ga")


def test_half_a_fallback_character_at_the_end_is_flushed() -> None:
    ids = [*fallback_ids("▁the"), *fallback_bytes("한".encode()[:2])]
    assert "".join(pieces(FALLBACK, ids)) == FALLBACK.decode(ids, skip_special=True)


@given(st.lists(st.sampled_from(["▁alpha", "▁", "mma", "é", "한", "👍"]), max_size=25))
@settings(max_examples=150, deadline=None)
def test_any_valid_fallback_text_equals_the_one_shot_decode(words: list[str]) -> None:
    ids: list[int] = []
    for word in words:
        known = FALLBACK.inner.token_to_id(word)
        ids += fallback_bytes(word.encode()) if known is None else [known]
    assert "".join(pieces(FALLBACK, ids)) == FALLBACK.decode(ids, skip_special=True)
