"""What any OpenAI-compatible endpoint says of itself."""

import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.arms.base import Endpoint
from splitserve.lab.plan.config_diff import Scalar

_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)
_MODEL_KEYS: Final = ("max_model_len", "root")


async def live_config(endpoint: Endpoint) -> dict[str, Scalar]:
    """``software.version`` and ``model.*`` as the servers say, without what they do not say.

    Raises UnavailableError when nobody answers, ConfigError when the model is not served there.
    """
    card = _card(await _json(endpoint, "/v1/models"), endpoint)
    live: dict[str, Scalar] = {f"model.{key}": card[key] for key in _MODEL_KEYS if card.get(key)}
    version = await _optional_json(endpoint, "/version")
    for key in ("version", "commit"):
        if isinstance(version, dict) and isinstance(version.get(key), str):
            live[f"software.{key}"] = version[key]
    return live


async def not_serving(endpoint: Endpoint) -> str | None:
    """None when the model is served there now, else why not."""
    try:
        await live_config(endpoint)
    except (UnavailableError, ConfigError) as error:
        return str(error)
    return None


async def read_metrics(endpoint: Endpoint) -> dict[str, float]:
    """All samples of ``/metrics`` by name and labels; empty where there is no such page."""
    status, text = await _get(endpoint, "/metrics")
    if status != 200:
        return {}
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError:
        return {}
    return {
        _sample_name(sample.name, sample.labels): float(sample.value)
        for family in families
        for sample in family.samples
    }


async def reset_prefix_cache(endpoint: Endpoint) -> None:
    """Raises UnavailableError where the endpoint has no such call (vLLM's development mode has)."""
    path = "/reset_prefix_cache"
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.post(endpoint.url + path, headers=endpoint.headers) as answer,
        ):
            status = answer.status
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _unreachable(endpoint, path, error) from error
    if status != 200:
        raise UnavailableError(
            f"{endpoint.url}{path} answers {status}; take another state.cache_reset than endpoint"
        )


def _sample_name(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name


def _card(models: object, endpoint: Endpoint) -> dict[str, Any]:
    listed = models.get("data") if isinstance(models, dict) else None
    cards = [card for card in listed or [] if isinstance(card, dict)]
    found = next((card for card in cards if card.get("id") == endpoint.model), None)
    if found is None:
        names = ", ".join(str(card.get("id")) for card in cards) or "no model"
        raise ConfigError(
            f"{endpoint.url} serves {names} and not {endpoint.model}; set the arm's served_as, or "
            "start the model that the study names"
        )
    return found


async def _json(endpoint: Endpoint, path: str) -> object:
    status, text = await _get(endpoint, path)
    if status != 200:
        raise UnavailableError(f"{endpoint.url}{path} answers {status}")
    try:
        return json.loads(text)
    except ValueError as error:
        raise UnavailableError(f"{endpoint.url}{path} is no JSON: {error}") from error


async def _optional_json(endpoint: Endpoint, path: str) -> object:
    try:
        return await _json(endpoint, path)
    except UnavailableError:
        return None


async def _get(endpoint: Endpoint, path: str) -> tuple[int, str]:
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.get(endpoint.url + path, headers=endpoint.headers) as answer,
        ):
            return answer.status, await answer.text()
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError) as error:
        raise _unreachable(endpoint, path, error) from error


def _unreachable(endpoint: Endpoint, path: str, error: Exception) -> UnavailableError:
    why = str(error) or "it took too long"
    return UnavailableError(f"{endpoint.url}{path} does not answer: {why}")
