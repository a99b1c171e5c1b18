"""MultiConnector: several connectors in one instance, of which one moves KV to decode."""

from collections.abc import Mapping
from typing import Any, Final

from splitserve.errors import ConfigError
from splitserve.router.workers.vllm.dialects.base import Dialect
from splitserve.router.workers.vllm.dialects.lmcache import LMCache
from splitserve.router.workers.vllm.dialects.registry import dialect_for
from splitserve.router.workers.vllm.dialects.unspoken import Unspoken

LOCAL: Final = frozenset({"HF3FSKVConnector", "HiSparseConnector", "SimpleCPUOffloadConnector"})
"""Stores that are no way to decode but do no harm beside one."""


def dialect(config: Mapping[str, Any]) -> Dialect:
    """The dialect of the child that hands over, else of the first shared store: vLLM merges what
    the children return, and each child reads only its own keys.

    Raises ConfigError when no child gives decode anything, or several would.
    """
    extra = config.get("kv_connector_extra_config") or {}
    found = [dialect_for(child) for child in _children(extra.get("connectors"))]
    movers = [child for child in found if not isinstance(child, Unspoken | LMCache)]
    if len(movers) > 1:
        names = " and ".join(mover.name for mover in movers)
        raise ConfigError(
            f"MultiConnector has several children that move KV to decode ({names}): they would "
            "answer with the same keys. Leave one of them in connectors"
        )
    if not found:
        raise ConfigError(
            "MultiConnector has no child that brings KV to decode: add NixlConnector to "
            "kv_connector_extra_config.connectors"
        )
    return (movers or found)[0]


def _children(connectors: object) -> list[Mapping[str, Any]]:
    children = connectors if isinstance(connectors, list) else []
    for child in children:
        if not isinstance(child, Mapping) or not child.get("kv_connector"):
            raise ConfigError(f"MultiConnector: {child!r} in connectors has no kv_connector")
    return [child for child in children if child["kv_connector"] not in LOCAL]
