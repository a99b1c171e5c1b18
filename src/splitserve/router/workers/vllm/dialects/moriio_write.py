"""MoRIIOConnector in write mode: decode notifies prefill of its blocks, prefill writes into them.

Both legs at once; each instance is told the other's address.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects import moriio_address
from splitserve.router.workers.vllm.dialects.base import Instance, Leg, Params
from splitserve.router.workers.vllm.dialects.transfer import transfer_id


@dataclass(frozen=True, slots=True)
class MoriioWrite:
    """vLLM reads ``remote_engine_id`` and ``remote_block_ids`` blindly in both legs, though
    neither is known yet: they go as null and empty."""

    name: str = "moriio_write"
    concurrent: bool = True
    needs: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {
            "prefill": moriio_address.NEEDS,
            "decode": moriio_address.NEEDS,
        }
    )

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        headers = moriio_address.request_id(handoff, prefill, decode)
        return Leg(
            _params(handoff, decode, prefilled=False), headers | dict(moriio_address.rank(prefill))
        )

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        del returned
        headers = moriio_address.request_id(handoff, prefill, decode)
        return Leg(_params(handoff, prefill, prefilled=True), headers)

    def release(self, returned: Params | None, prefill: Instance | None = None) -> None:
        """Prefill would write into a request that only names it: its ``defer_timeout`` frees."""
        del returned, prefill


def _params(handoff: HandoffId, peer: Instance, *, prefilled: bool) -> dict[str, Any]:
    return {
        "do_remote_decode": not prefilled,
        "do_remote_prefill": prefilled,
        "remote_engine_id": None,
        "remote_block_ids": [],
        "transfer_id": transfer_id(handoff),
    } | moriio_address.peer(peer)
