"""Ids of an answer's tool calls."""

import hashlib
import secrets
from typing import Final

from splitserve.frontend.derender.parsers.base import CallIds

_HEX_DIGITS: Final = 24


def new_call_ids(seed: str | None = None) -> CallIds:
    """``call_`` and 24 hex digits, as OpenAI writes them. The same seed gives the same ids, so an
    answer that is derendered in several calls keeps them; None draws one.
    """
    seed = seed or secrets.token_hex(16)

    def call_id(index: int, name: str) -> str:
        digest = hashlib.sha256(f"{seed}\0{index}\0{name}".encode())
        return f"call_{digest.hexdigest()[:_HEX_DIGITS]}"

    return call_id
