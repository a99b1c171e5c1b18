"""The answers of GET /v1/models and /v1/models/{id}."""

from typing import Any


def model_card(name: str, created: int, max_model_len: int) -> dict[str, Any]:
    """One model. ``created`` is Unix seconds; ``max_model_len`` is vLLM's addition, in tokens."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "splitserve",
        "root": name,
        "parent": None,
        "max_model_len": max_model_len,
    }


def model_list(cards: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "data": cards}
