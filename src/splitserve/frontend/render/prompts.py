"""Prompt text or ids to checked token ids that fit the model."""

from splitserve.errors import CallerError
from splitserve.frontend.tokenizer import Tokenizer


def encode_text(
    tokenizer: Tokenizer, text: str, max_model_len: int, *, rendered: bool
) -> tuple[int, ...]:
    """``rendered`` text comes from a chat template. Raises CallerError as ``check_length`` does."""
    param = "messages" if rendered else "prompt"
    # A text that cannot fit is refused before its tokenising, which may take seconds.
    if tokenizer.fewest_tokens(text) >= max_model_len:
        raise _too_long(f"more than {max_model_len}", max_model_len, param)
    ids = tokenizer.encode_rendered(text) if rendered else tokenizer.encode_prompt(text)
    if not ids:
        raise CallerError(f"'{param}' gives no tokens", param=param)
    check_length(ids, max_model_len, param)
    return ids


def check_ids(tokenizer: Tokenizer, ids: tuple[int, ...], max_model_len: int) -> tuple[int, ...]:
    """Raises CallerError for ids the model does not have, or too many of them."""
    if max(ids) >= tokenizer.vocab_size:
        raise CallerError(
            f"'prompt': token id {max(ids)} is outside the vocabulary of {tokenizer.vocab_size}",
            param="prompt",
        )
    check_length(ids, max_model_len, "prompt")
    return ids


def check_length(ids: tuple[int, ...], max_model_len: int, param: str) -> None:
    """Raises CallerError (context_length_exceeded) when no token of answer would have room."""
    if len(ids) >= max_model_len:
        raise _too_long(str(len(ids)), max_model_len, param)


def _too_long(tokens: str, max_model_len: int, param: str) -> CallerError:
    return CallerError(
        f"this model's context is {max_model_len} tokens for prompt and answer together; "
        f"'{param}' has {tokens} tokens",
        param=param,
        code="context_length_exceeded",
    )
