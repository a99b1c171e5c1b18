"""Makes the client for an address: ``vllm+http://...`` is vLLM, anything else is not ours."""

from collections.abc import Mapping

from splitserve.errors import ConfigError
from splitserve.router.workers.client import Connect, WorkerClient, WorkerEvents
from splitserve.router.workers.vllm.client import VllmClient
from splitserve.router.workers.vllm.dialects.base import Dialect
from splitserve.router.workers.vllm.dialects.plain import NAME as PLAIN
from splitserve.router.workers.vllm.dialects.registry import dialect_for
from splitserve.router.workers.vllm.exchange import Exchange
from splitserve.router.workers.vllm.handshake import TryOut, trusted
from splitserve.router.workers.vllm.settings import (
    SCHEME,
    VllmWorker,
    missing_facts,
    parse_address,
)


def connector(
    others: Connect,
    exchange: Exchange,
    *,
    backoff_s: float,
    max_backoff_s: float,
    api_key: str = "",
    workers: Mapping[str, VllmWorker] | None = None,
    try_out: TryOut = trusted,
) -> Connect:
    """Clients of vLLM instances share ``exchange``; ``others`` makes all other clients.

    ``workers`` are settings by address, where more is known than an address can hold; the others'
    are read from the address, and ``api_key`` is theirs. A pair of instances must pass ``try_out``
    before it is linked. The Connect raises ConfigError for an
    address or a connector that cannot be used.
    """

    def connect(address: str, events: WorkerEvents) -> WorkerClient:
        if not address.startswith(SCHEME):
            return others(address, events)
        worker = (workers or {}).get(address) or parse_address(address, api_key)
        return VllmClient(
            address,
            events,
            worker,
            _dialect(worker),
            exchange,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            try_out=try_out,
        )

    return connect


def _dialect(worker: VllmWorker) -> Dialect | None:
    """None without a connector: a prefill leg would be work for nothing."""
    if not worker.kv_transfer_config:
        return None
    dialect = dialect_for(worker.kv_transfer_config)
    if dialect.name == PLAIN:
        return None
    missing = missing_facts(worker, dialect, worker.role)
    if missing:
        raise ConfigError(f"worker {worker.name}: {dialect.name} needs {', '.join(missing)} of it")
    return dialect
