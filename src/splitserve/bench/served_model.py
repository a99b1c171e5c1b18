"""What an OpenAI-compatible server serves."""

import aiohttp

from splitserve.errors import UnavailableError


async def served_model(url: str) -> str:
    """The first model in its list; ``url`` is without ``/v1``. Raises UnavailableError."""
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/models") as answer:
            return str((await answer.json())["data"][0]["id"])
    except aiohttp.ClientConnectionError as error:
        raise UnavailableError(f"nothing answers at {url}: {error}") from error
    except (aiohttp.ClientError, ValueError, LookupError, TypeError) as error:
        raise UnavailableError(f"{url}/v1/models tells no model: {error}") from error
