"""The dialects by the connector's name, as ``--kv-transfer-config`` has it."""

from collections.abc import Mapping
from typing import Any, Final

from splitserve.errors import ConfigError
from splitserve.loading import load
from splitserve.router.workers.vllm.dialects.base import Dialect

_HERE: Final = "splitserve.router.workers.vllm.dialects"

DIALECTS: Final[Mapping[str, str]] = {
    "ExampleConnector": f"{_HERE}.example:dialect",
    "FlexKVConnectorV1": f"{_HERE}.flexkv:dialect",
    "LMCacheConnectorV1": f"{_HERE}.lmcache:dialect",
    "LMCacheMPConnector": f"{_HERE}.lmcache_mp:dialect",
    "MoRIIOConnector": f"{_HERE}.moriio:dialect",
    "MooncakeConnector": f"{_HERE}.mooncake:dialect",
    "MooncakeStoreConnector": f"{_HERE}.mooncake_store:dialect",
    "MultiConnector": f"{_HERE}.multi:dialect",
    "NixlConnector": f"{_HERE}.nixl_pull:dialect",
    "NixlPullConnector": f"{_HERE}.nixl_pull:dialect",
    "NixlPushConnector": f"{_HERE}.nixl_push:dialect",
    "OffloadingConnector": f"{_HERE}.offloading:dialect",
}
"""Each takes the whole configuration and gives the Dialect."""

CANNOT_SPLIT: Final[Mapping[str, str]] = {
    "DecodeBenchConnector": "it fills decode with made-up KV for benchmarks",
    "ExampleHiddenStatesConnector": "it writes hidden states, not KV",
    "HF3FSKVConnector": "Splitserve has no dialect for its store",
    "HiSparseConnector": "its store is one instance's own memory",
    "P2pNcclConnector": "vLLM has dropped it",
    "SimpleCPUOffloadConnector": "its store is one instance's own memory",
}
"""Connectors that vLLM knows, and why decode gets no KV from prefill by them."""


def dialect_for(kv_transfer_config: Mapping[str, Any] | None) -> Dialect:
    """The dialect of an instance; the plain one for an instance without connector.

    Raises ConfigError with cause and cure for a connector that cannot split or is not known.
    """
    config = kv_transfer_config or {}
    name = config.get("kv_connector") or None
    if config.get("kv_connector_module_path"):
        raise ConfigError(
            f"kv_connector {name!r} is a class from outside vLLM (kv_connector_module_path), whose "
            "parameters are not known: use one of vLLM's own, such as NixlConnector"
        )
    if name is None:
        found: Dialect = load(f"{_HERE}.plain:dialect")(config)
        return found
    if name in CANNOT_SPLIT:
        raise ConfigError(
            f"kv_connector {name} cannot split a request: {CANNOT_SPLIT[name]}. Use NixlConnector "
            'in kv_connector, or the role "colocated"'
        )
    if name not in DIALECTS:
        raise ConfigError(f"kv_connector {name!r} is none of {', '.join(sorted(DIALECTS))}")
    dialect: Dialect = load(DIALECTS[name])(config)
    return dialect
