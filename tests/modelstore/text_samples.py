"""Varied strings on which tokenizers like to differ."""

import random
import unicodedata

_PIECES = [
    " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", " \n ",
    "don't", "I'LL", "we've", "it's", "hello", " world", "HelloWorld", "parseHTML",
    "import os\n", "def f(x):\n    return x", "path/to/file", "a_b", "x+=1;", "...", "!?",
    "naïve", "Übergröße", "e\u0301", "日本語", "中文", "한국어", "русский", "العربية", "हिन्दी",
    "🙂", "👩‍👩‍👧", "½", "²", "Ⅷ", "٣", "<", ">", "<|", "|>", "\u200b", "\ufeff",
]  # fmt: skip


def varied_texts(count: int, *, special: tuple[str, ...] = (), seed: int = 1) -> list[str]:
    """``count`` strings of pieces above, digits, random characters and ``special``."""
    rng = random.Random(seed)
    return ["".join(_piece(rng, special) for _ in range(rng.randint(1, 24))) for _ in range(count)]


def _piece(rng: random.Random, special: tuple[str, ...]) -> str:
    kind = rng.randrange(10)
    if kind < 5:
        return rng.choice(_PIECES)
    if kind < 7:
        return str(rng.randrange(10 ** rng.randint(1, 8)))
    if kind == 7 and special:
        return rng.choice(special)
    if kind == 8:
        return _character(rng)
    return "".join(chr(rng.randint(33, 126)) for _ in range(rng.randint(1, 8)))


def _character(rng: random.Random) -> str:
    while True:
        text = chr(rng.randint(0xA1, 0x2FFFF))
        # Unassigned ones are left out: tables of different Unicode versions disagree on them.
        if unicodedata.category(text) not in ("Cs", "Cn", "Co"):
            return text
