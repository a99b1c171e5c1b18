"""Log-probabilities in OpenAI's two forms."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from splitserve.frontend.derender.events import Scored
from splitserve.frontend.tokenizer import Tokenizer

# JSON has no minus infinity; vLLM's stand-in for a token that could not be chosen.
_LOWEST: Final = -9999.0


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """The token's text, or ``bytes:\\xe4\\xbd`` (OpenAI's form) where it is part of a character."""
    raw = tokenizer.token_bytes(token_id)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def chat_logprobs(tokenizer: Tokenizer, scored: Iterable[Scored]) -> dict[str, Any]:
    """``choices[].logprobs`` of a chat answer or chunk."""
    return {
        "content": [
            {
                **_entry(tokenizer, token.token_id, token.logprob),
                "top_logprobs": [_entry(tokenizer, *pair) for pair in token.top],
            }
            for token in scored
        ],
        "refusal": None,
    }


def completion_logprobs(tokenizer: Tokenizer, scored: Sequence[Scored]) -> dict[str, Any]:
    """``choices[].logprobs`` of a completion answer or chunk. The chosen token is among
    ``top_logprobs`` even where others were likelier, as OpenAI and vLLM have it."""
    return {
        "tokens": [token_text(tokenizer, token.token_id) for token in scored],
        "token_logprobs": [_finite(token.logprob) for token in scored],
        "top_logprobs": [_alternatives(tokenizer, token) for token in scored],
        "text_offset": [token.offset for token in scored],
    }


def _entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    return {
        "token": token_text(tokenizer, token_id),
        "logprob": _finite(logprob),
        "bytes": list(tokenizer.token_bytes(token_id)),
    }


def _alternatives(tokenizer: Tokenizer, token: Scored) -> dict[str, float]:
    pairs = ((token.token_id, token.logprob), *token.top)
    found: dict[str, float] = {}
    for token_id, logprob in pairs:
        # Two ids can have the same text; the likelier one, which comes first, keeps the name.
        found.setdefault(token_text(tokenizer, token_id), _finite(logprob))
    return found


def _finite(logprob: float) -> float:
    return max(logprob, _LOWEST)
