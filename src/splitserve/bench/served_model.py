"""What an OpenAI-compatible server serves, and which ids its prompts may have."""

from typing import Final

import aiohttp

from splitserve.errors import UnavailableError
from splitserve.modelstore.resolve import resolve

_MOST_IDS: Final = 48_000
"""Larger ids a tokenizer may not have, where embeddings are padded."""


def prompt_ids(model: str) -> int:
    """Prompts for ``model``, named as for ``splitserve serve``, use ids below this."""
    return min(_MOST_IDS, int(resolve(model).config()["vocab_size"]))


async def served_model(url: str) -> str:
    """The first model in its list; ``url`` is without ``/v1``. Raises UnavailableError."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/models") as answer:
            return str((await answer.json())["data"][0]["id"])
    except aiohttp.ClientConnectionError as error:
        raise UnavailableError(f"nothing answers at {url}: {error}") from error
    except (aiohttp.ClientError, ValueError, LookupError, TypeError) as error:
        raise UnavailableError(f"{url}/v1/models tells no model: {error}") from error
