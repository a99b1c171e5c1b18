"""A tokenizer.json of a few dozen ids: what JSON is made of, and pieces of it."""

import json
from pathlib import Path

CONTROL = ["<unk>", "<s>", "</s>"]
PIECES = ['{"', '":', '",', '"a"', "true", "null", "12", "bc"]
SIGNS = '{}[]",:.-+_\\/<>()=!?'
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP"
SPACES = "ĠĊ"
NAMES = [*CONTROL, *PIECES, *SIGNS, *LETTERS, *SPACES]
WITHOUT_SPACES = len(NAMES) - len(SPACES)
"""Size of a tokenizer that cannot write white space."""


def tokenizer_json(size: int) -> str:
    """``size`` ids at most ``len(NAMES)``: three control tokens, then byte-level pieces."""
    names = NAMES[:size]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {
                    "id": number,
                    "content": name,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
                for number, name in enumerate(CONTROL)
            ],
            "normalizer": None,
            "pre_tokenizer": {**byte_level, "use_regex": False},
            "post_processor": None,
            "decoder": {**byte_level, "use_regex": False},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": "<unk>",
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {name: number for number, name in enumerate(names)},
                "merges": [],
            },
        }
    )


def write_tokenizer(folder: Path, size: int) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(tokenizer_json(size), encoding="utf-8")
    return path


def text_of(ids: list[int]) -> str:
    """Control tokens give no text."""
    text = "".join(NAMES[each] for each in ids if each >= len(CONTROL))
    return text.replace("Ġ", " ").replace("Ċ", "\n")


def ids_of(text: str) -> list[int]:
    """One id a character."""
    names = text.replace(" ", "Ġ").replace("\n", "Ċ")
    return [NAMES.index(name) for name in names]
