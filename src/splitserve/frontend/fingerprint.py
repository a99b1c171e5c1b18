"""What must agree between everything that turns a request into tokens and tokens into an answer.

A prompt rendered with one template and an answer read with another model's tokenizer or parser
looks well-formed and is wrong, so the tiers compare these before they work together.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from splitserve.frontend.derender.parsers.registry import NONE
from splitserve.frontend.model import ServedModel
from splitserve.modelstore.folder import ModelFolder

HEADER: Final = b"x-splitserve-fingerprint"

STREAM_STATE_VERSION: Final = 1
"""Of what a client carries between the calls of a streamed derender."""

_SHORT_HEX_DIGITS: Final = 16


def text_fingerprint(folder: ModelFolder, model: ServedModel) -> Mapping[str, str]:
    """By part, what text depends on. Raises ConfigError when the folder lacks a tokenizer."""
    return {
        "model": model.name,
        "tokenizer": folder.tokenizer_hash(),
        "template": folder.template_hash(),
        "reasoning_parser": model.parsers.reasoning or NONE,
        "tool_call_parser": model.parsers.tool_calls or NONE,
        "stream_state": str(STREAM_STATE_VERSION),
    }


def short_fingerprint(parts: Mapping[str, str]) -> str:
    """All parts in 16 hex digits: what a header carries."""
    return hashlib.sha256(msgspec.json.encode(sorted(parts.items()))).hexdigest()[
        :_SHORT_HEX_DIGITS
    ]
