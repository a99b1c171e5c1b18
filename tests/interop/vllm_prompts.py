"""Prompts of tests against vLLM."""

import random


def prompt(length: int, seed: object = 0) -> list[int]:
    """Token ids that no other ``length`` and ``seed`` begins with."""
    stream = random.Random(f"{seed}-{length}")
    return [stream.randrange(100, 48000) for _ in range(length)]
