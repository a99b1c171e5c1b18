"""NixlPushConnector: decode registers its blocks with prefill, which writes into them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects import nixl_answer
from splitserve.router.workers.vllm.dialects.base import Dialect, Instance, Leg, Params
from splitserve.router.workers.vllm.dialects.checks import fact
from splitserve.router.workers.vllm.dialects.transfer import transfer_id


@dataclass(frozen=True, slots=True)
class NixlPush:
    """Both legs at once: decode must know prefill's address beforehand.

    vLLM 0.32 pairs the legs by their request id without its random end, newer ones by
    ``transfer_id``. A prefill answer that is already there names prefill's own request id, with
    which decode's heartbeats reach it; before that only the 30 s lease protects the blocks.
    """

    name: str = "nixl_push"
    concurrent: bool = True
    needs: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {
            "prefill": ("engine_id", "side_channel_host", "side_channel_port", "tp_size")
        }
    )

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        del prefill, decode
        return Leg(
            {
                "do_remote_decode": True,
                "do_remote_prefill": False,
                "transfer_id": transfer_id(handoff),
            }
        )

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        del decode
        if returned is None:
            params = _beforehand(handoff, prefill)
        else:
            params = _without_blocks(nixl_answer.sound(returned, prefill, mode="push"))
        return Leg(params | {"transfer_id": transfer_id(handoff)})

    def release(self, returned: Params | None, prefill: Instance | None = None) -> None:
        """A request that only names prefill would have its blocks written into, or wait for it for
        ever: prefill's lease frees them."""
        del returned, prefill


def _beforehand(handoff: HandoffId, prefill: Instance) -> dict[str, Any]:
    return {
        "do_remote_decode": False,
        "do_remote_prefill": True,
        "remote_engine_id": str(fact(prefill, "engine_id")),
        "remote_request_id": str(handoff),
        "remote_host": fact(prefill, "side_channel_host"),
        "remote_port": fact(prefill, "side_channel_port"),
        "tp_size": fact(prefill, "tp_size"),
        "pp_size": prefill.facts.get("pp_size", 1),
    }


def _without_blocks(params: dict[str, Any]) -> dict[str, Any]:
    """Prefill finds its blocks itself; decode says which of its own they go to."""
    return {key: value for key, value in params.items() if key != "remote_block_ids"}


def dialect(config: Mapping[str, Any]) -> Dialect:
    del config
    return NixlPush()
