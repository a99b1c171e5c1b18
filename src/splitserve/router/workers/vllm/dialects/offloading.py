"""OffloadingConnector: tiers of memory addressed by content; with a P2P tier a true handoff."""

from collections.abc import Mapping
from typing import Any

from splitserve.router.workers.vllm.dialects.base import Dialect
from splitserve.router.workers.vllm.dialects.offloading_p2p import OffloadingP2P
from splitserve.router.workers.vllm.dialects.unspoken import Unspoken


def dialect(config: Mapping[str, Any]) -> Dialect:
    extra = config.get("kv_connector_extra_config") or {}
    tiers = extra.get("secondary_tiers") or ()
    if any(isinstance(tier, Mapping) and tier.get("type") == "p2p" for tier in tiers):
        return OffloadingP2P()
    return Unspoken("offloading")
