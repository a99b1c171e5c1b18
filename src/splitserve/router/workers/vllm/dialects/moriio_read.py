"""MoRIIOConnector in read mode: decode reads prefill's blocks after prefill has answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects import moriio_address, moriio_answer
from splitserve.router.workers.vllm.dialects.base import DialectError, Instance, Leg, Params
from splitserve.router.workers.vllm.dialects.checks import holds_blocks
from splitserve.router.workers.vllm.dialects.transfer import transfer_id


@dataclass(frozen=True, slots=True)
class MoriioRead:
    """Addresses go in the request id of both legs, and decode gets prefill's as keys too."""

    name: str = "moriio_read"
    concurrent: bool = False
    needs: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {
            "prefill": moriio_address.NEEDS,
            "decode": moriio_address.NEEDS,
        }
    )

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        params: dict[str, Any] = {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "transfer_id": transfer_id(handoff),
        }
        headers = moriio_address.request_id(handoff, prefill, decode)
        return Leg(params, headers | dict(moriio_address.rank(prefill)))

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        answered = moriio_answer.sound(returned, prefill, transfer_id(handoff))
        return Leg(
            moriio_address.peer(prefill) | answered,
            moriio_address.request_id(handoff, prefill, decode),
        )

    def release(self, returned: Params | None, prefill: Instance | None = None) -> Params | None:
        """A prompt of one token has nothing to read, and tells prefill so. None without an address
        in the answer (vLLM 0.23)."""
        if not holds_blocks(returned):
            return None
        try:
            params = moriio_answer.sound(returned, prefill, None)
        except DialectError:
            return None
        return params if moriio_answer.ADDRESS.keys() <= params.keys() else None
