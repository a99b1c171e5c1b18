"""OffloadingConnector with a P2P tier: decode fetches from prefill's store as it fills."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects.base import Instance, Leg, Params
from splitserve.router.workers.vllm.dialects.checks import fact
from splitserve.router.workers.vllm.dialects.transfer import transfer_id


@dataclass(frozen=True, slots=True)
class OffloadingP2P:
    """Both legs at once, joined by ``kv_request_id``. Stores that nobody fetches go after 60 s.
    ``p2p_host`` and ``p2p_port`` are the tier's control address (VLLM_P2P_SIDE_CHANNEL_*)."""

    name: str = "offloading_p2p"
    concurrent: bool = True
    needs: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"prefill": ("p2p_host", "p2p_port")}
    )

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        del prefill, decode
        return Leg({"remote_decoder": {"kv_request_id": transfer_id(handoff)}})

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        del decode, returned
        source = {
            "kv_request_id": transfer_id(handoff),
            "remote_host": fact(prefill, "p2p_host"),
            "remote_port": fact(prefill, "p2p_port"),
        }
        return Leg({"remote_prefiller": source})

    def release(self, returned: Params | None, prefill: Instance | None = None) -> None:
        del returned, prefill
        return None
