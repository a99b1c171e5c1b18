"""vLLM's POST /tokenize and /detokenize: the way of a prompt, as far as its ids, and back."""

from typing import Final

import msgspec

from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.chat import chat_ids, chat_text, template_of
from splitserve.frontend.render.checks import check_model
from splitserve.frontend.render.prompts import Room, check_ids, encode_text
from splitserve.protocol.openai.parse import parse
from splitserve.protocol.openai.tokenize import Detokenize, TokenizeChat, TokenizeText

# Counting is no reason to refuse what is too long to be answered.
_ANY_LENGTH: Final = Room(2**62)
_CHAT_FIELD: Final = "messages"


def tokenize(model: ServedModel, body: bytes) -> bytes:
    """``{"prompt"}`` or ``{"messages"}`` to ``{"count", "max_model_len", "tokens",
    "token_strs"}``. Raises CallerError."""
    ids, show = _chat(model, body) if _is_chat(body) else _text(model, body)
    answer = {
        "count": len(ids),
        "max_model_len": model.max_model_len,
        "tokens": ids,
        "token_strs": [model.tokenizer.token(one) for one in ids] if show else None,
    }
    return msgspec.json.encode(answer)


def detokenize(model: ServedModel, body: bytes) -> bytes:
    """``{"tokens"}`` to ``{"prompt"}``, control tokens included. Raises CallerError."""
    request = parse(Detokenize, body)
    check_model(request.model, model.name)
    check_ids(model.tokenizer, tuple(request.tokens), "tokens")
    return msgspec.json.encode(
        {"prompt": model.tokenizer.decode(request.tokens, skip_special=False)}
    )


def _is_chat(body: bytes) -> bool:
    """A body that is no JSON object is for ``parse`` to refuse."""
    try:
        return _CHAT_FIELD in msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False


def _chat(model: ServedModel, body: bytes) -> tuple[tuple[int, ...], bool]:
    request = parse(TokenizeChat, body)
    check_model(request.model, model.name)
    template = template_of(model)
    shown = tuple(tool.shown() for tool in request.tools or ())
    text = chat_text(template, request, shown)
    return chat_ids(model, template, text, request, _ANY_LENGTH), bool(request.return_token_strs)


def _text(model: ServedModel, body: bytes) -> tuple[tuple[int, ...], bool]:
    request = parse(TokenizeText, body)
    check_model(request.model, model.name)
    add_special = request.add_special_tokens is not False
    ids = encode_text(model.tokenizer, request.prompt, _ANY_LENGTH, add_special=add_special)
    return ids, bool(request.return_token_strs)
