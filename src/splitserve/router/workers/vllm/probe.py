"""Who answers at an address: version, model, endpoints, size of the KV pool."""

import re
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from splitserve.ids import Incarnation, new_incarnation
from splitserve.protocol.control import Welcome
from splitserve.router.workers.vllm.bodies import COMPLETIONS, GENERATE, Endpoint
from splitserve.router.workers.vllm.calls import Calls
from splitserve.router.workers.vllm.failure import LegFailed
from splitserve.router.workers.vllm.load_metrics import (
    DEFAULT_BLOCK_SIZE,
    Reading,
    kv_counts,
    read_metrics,
)
from splitserve.router.workers.vllm.settings import VllmWorker

Kind = TypeVar("Kind")

PROBE_TIMEOUT_S: Final = 5.0

GENERATE_SINCE: Final = (0, 32)
"""Before, ``/inference/v1/generate`` did not stream, or told tokens of logprobs as text."""

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Model(msgspec.Struct, frozen=True):
    id: str
    root: str | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What an instance says of itself. ``root`` is the model as vLLM was given it."""

    version: str
    root: str
    endpoint: Endpoint
    reading: Reading
    incarnation: Incarnation


async def probe(calls: Calls, worker: VllmWorker) -> Found:
    """Raises LegFailed while the instance is not ready, or is no vLLM."""
    await calls.get("/health", PROBE_TIMEOUT_S)
    version = _decode(await calls.get("/version", PROBE_TIMEOUT_S), _Version).version
    models = _decode(await calls.get("/v1/models", PROBE_TIMEOUT_S), _Models).data
    if not models:
        raise LegFailed("engine", "it serves no model")
    model = models[0]
    reading = read_metrics(await calls.get("/metrics", PROBE_TIMEOUT_S))
    endpoint = Endpoint(
        path=await _best_path(calls, version, tells_times=worker.tells_times),
        model=model.id,
        max_model_len=model.max_model_len or kv_counts(reading).total * _block_size(reading),
        priorities=worker.priorities,
    )
    life = Incarnation(reading.started) if reading.started else new_incarnation()
    return Found(version, model.root or model.id, endpoint, reading, life)


def welcome(worker: VllmWorker, found: Found, connector: str) -> Welcome:
    """``connector`` is the dialect's name, empty for an instance that hands nothing over. What two
    instances that hand over must have in common goes into the fingerprint: NIXL takes part in
    nothing else than the same version, model name and block size."""
    block_size = _block_size(found.reading)
    fingerprint = {"vllm_model": found.root}
    if connector:
        fingerprint |= {
            "vllm_version": found.version,
            "vllm_connector": connector,
            "vllm_block_size": str(block_size),
        }
    return Welcome(
        worker=worker.name,
        incarnation=found.incarnation,
        role=worker.role,
        address=worker.url,
        pid=0,
        model=found.endpoint.model,
        connector=connector,
        max_model_len=found.endpoint.max_model_len,
        vocab_size=0,
        block_size=block_size,
        kv_token_bytes=0,
        fingerprint=fingerprint,
        max_num_seqs=worker.max_num_seqs,
    )


async def _best_path(calls: Calls, version: str, *, tells_times: bool) -> str:
    """An empty body costs nothing where the endpoint is open (400), and is refused otherwise where
    it is not (403, 404, 405). vLLM tells a request's times at the other endpoint only."""
    numbers = _VERSION.match(version)
    if tells_times or numbers is None or (int(numbers[1]), int(numbers[2])) < GENERATE_SINCE:
        return COMPLETIONS
    status = await calls.post_status(GENERATE, b"{}", PROBE_TIMEOUT_S)
    return GENERATE if status in (400, 422) else COMPLETIONS


def _block_size(reading: Reading) -> int:
    return reading.block_size or DEFAULT_BLOCK_SIZE


def _decode(body: bytes, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise LegFailed("engine", f"it answers as no vLLM does: {error}") from None
