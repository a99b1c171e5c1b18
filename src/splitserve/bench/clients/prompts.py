"""Texts for chats. Pure."""

import random
from typing import Final

_WORDS: Final = (
    "river",
    "stone",
    "paper",
    "light",
    "garden",
    "window",
    "bridge",
    "winter",
    "orange",
    "silver",
    "letter",
    "music",
    "forest",
    "kitchen",
    "harbour",
    "market",
    "mirror",
    "castle",
)


def texts(count: int, words: int, seed: int) -> list[str]:
    """``count`` texts of ``words`` common words; a word is about one token to most tokenizers.

    They differ from the first word on more often than not, and always by the last.
    """
    stream = random.Random(f"clients-{seed}")
    return [
        f"{' '.join(stream.choice(_WORDS) for _ in range(words - 1))} {number}"
        for number in range(count)
    ]
