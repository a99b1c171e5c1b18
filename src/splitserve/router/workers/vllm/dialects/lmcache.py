"""LMCacheConnectorV1: a cache addressed by content, or one that prefill sends straight to decode.

With a receiver configured on the decode instance, prefill is told of it; else nothing is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects.base import Dialect, Instance, Leg, Params
from splitserve.router.workers.vllm.dialects.checks import fact
from splitserve.router.workers.vllm.dialects.transfer import transfer_id

RECEIVER: Final = ("receiver_host", "receiver_init_port", "receiver_alloc_port")
"""Facts of a decode instance that receives: all three, with LMCache's own values, or none."""


@dataclass(frozen=True, slots=True)
class LMCache:
    """Prefill's answer means that everything is stored or sent."""

    name: str = "lmcache"
    concurrent: bool = False
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        del prefill
        if not any(key in decode.facts for key in RECEIVER):
            return Leg()
        spec = {key: fact(decode, key) for key in RECEIVER}
        return Leg({"disagg_spec": {"req_id": transfer_id(handoff), **spec}})

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        del handoff, prefill, decode, returned
        return Leg()

    def release(self, returned: Params | None, prefill: Instance | None = None) -> None:
        del returned, prefill
        return None


def dialect(config: Mapping[str, Any]) -> Dialect:
    del config
    return LMCache()
