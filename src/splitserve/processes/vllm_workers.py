"""How a gateway reaches workers: natively, or as vLLM instances at ``vllm+http`` addresses."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from splitserve.errors import ConfigError
from splitserve.processes.guard import API_KEY
from splitserve.protocol.gate import Gate
from splitserve.router.config import RouterConfig
from splitserve.router.workers.client import Connect, WorkerClient, WorkerEvents
from splitserve.router.workers.native import NativeClient
from splitserve.router.workers.vllm.connect import connector
from splitserve.router.workers.vllm.exchange import Exchange
from splitserve.router.workers.vllm.handshake import shake_hands
from splitserve.router.workers.vllm.settings import SCHEME, VllmWorker, parse_address
from splitserve.secret_files import secret_of

_EXTRA: Final = "kv_connector_extra_config"


def vllm_api_key(file: Path | None, environment: Mapping[str, str]) -> str:
    """The key that vLLM instances ask for; empty for none. Raises ConfigError as secret_of."""
    key = secret_of("--vllm-api-key-file", file, API_KEY, environment, min_bytes=1)
    return "" if key is None else key.decode()


def vllm_workers(addresses: Sequence[str], api_key: str) -> dict[str, VllmWorker]:
    """The settings in those of ``addresses`` that are vLLM's. Raises ConfigError."""
    return {
        address: _settings(address, api_key) for address in addresses if address.startswith(SCHEME)
    }


def connect_with(
    config: RouterConfig,
    vllm: Mapping[str, VllmWorker],
    gateway: str,
    gate: Gate,
    note: Callable[[str], None],
) -> Connect:
    """Makes the client for an address: by ``vllm`` where it is in there, else a native one, which
    passes ``gate`` over TCP. ``note`` counts what happens in handoffs between vLLM instances (see
    Exchange)."""

    def native(address: str, events: WorkerEvents) -> WorkerClient:
        return NativeClient(
            address,
            events,
            gateway=gateway,
            backoff_s=config.backoff_s,
            max_backoff_s=config.max_backoff_s,
            gate=gate,
        )

    return connector(
        native,
        Exchange(note),
        backoff_s=config.backoff_s,
        max_backoff_s=config.max_backoff_s,
        workers=vllm,
        try_out=shake_hands,
    )


def _settings(address: str, api_key: str) -> VllmWorker:
    """With the connector's own settings, which an address holds as JSON."""
    worker = parse_address(address, api_key)
    facts = dict(worker.facts)
    written = facts.pop(_EXTRA, None)
    if written is None:
        return worker
    try:
        extra = json.loads(str(written))
    except ValueError as error:
        raise ConfigError(f"address {address!r}: {_EXTRA} is no JSON: {error}") from None
    return replace(
        worker, facts=facts, kv_transfer_config={**worker.kv_transfer_config, _EXTRA: extra}
    )
