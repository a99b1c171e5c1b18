"""How byte-level vocabularies cut text into words before merging, by GGUF's names for it.

A GGUF file only names its cut (``tokenizer.ggml.pre``). The patterns are those of the original
models' tokenizer.json files; the names, and which share a pattern, are llama.cpp's
(llama-vocab.cpp).
"""

from dataclasses import dataclass
from typing import Final

_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3: Final = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2: Final = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{{end}}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{{end}}"
)
_SLASH_TAIL: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN: Final = _CASED.replace("{end}", "") + r"|\p{N}" + _SLASH_TAIL
_GPT4O: Final = _CASED.replace("{end}", f"{_CONTRACTION}?") + r"|\p{N}{1,3}" + _SLASH_TAIL


@dataclass(frozen=True, slots=True)
class Cut:
    """``patterns`` are applied one after another, each cutting what the one before left whole.

    ``digits_apart``: each digit is first made a word of its own.
    ``ignore_merges``: a word that is a token as it stands is taken as that token.
    ``nfc``: text is put into Unicode form C first. ``add_bos``: what holds when the file is silent.
    """

    patterns: tuple[str, ...]
    digits_apart: bool = False
    ignore_merges: bool = False
    nfc: bool = False
    add_bos: bool = False


_PLAIN: Final = Cut((_GPT2,))
_DIGITS_APART: Final = Cut((_GPT2,), digits_apart=True)
_LLAMA3_CUT: Final = Cut((_LLAMA3,), ignore_merges=True, add_bos=True)
# Qwen's own tokenizer.json normalises; llama.cpp does not. The model was trained on form C.
_QWEN2_CUT: Final = Cut((_QWEN2,), nfc=True)
_GPT4O_CUT: Final = Cut((_GPT4O,))

CUTS: Final = {
    # llama.cpp's stand-in for a file whose converter did not know the model.
    "default": Cut((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": _PLAIN,
    "smollm": _DIGITS_APART,
    "starcoder": _DIGITS_APART,
    "refact": _DIGITS_APART,
    "codeshell": _DIGITS_APART,
    "llama-bpe": _LLAMA3_CUT,
    "llama3": _LLAMA3_CUT,
    "llama-v3": _LLAMA3_CUT,
    "falcon3": _LLAMA3_CUT,
    "pixtral": _LLAMA3_CUT,
    "dbrx": Cut((_LLAMA3,)),
    "smaug-bpe": Cut((_LLAMA3,)),
    "qwen2": _QWEN2_CUT,
    "deepseek-r1-qwen": _QWEN2_CUT,
    "megrez": _QWEN2_CUT,
    "tekken": Cut((_TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o": _GPT4O_CUT,
    "llama4": _GPT4O_CUT,
}
