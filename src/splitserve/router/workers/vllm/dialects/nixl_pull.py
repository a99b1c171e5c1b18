"""NixlConnector, NixlPullConnector: decode reads prefill's blocks after prefill has answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects import nixl_answer
from splitserve.router.workers.vllm.dialects.base import (
    Dialect,
    DialectError,
    Instance,
    Leg,
    Params,
)
from splitserve.router.workers.vllm.dialects.checks import holds_blocks


@dataclass(frozen=True, slots=True)
class NixlPull:
    """Prefill answers with where its blocks are and keeps them for 30 s; decode's heartbeats, from
    its queue on, renew that.

    Known facts of the prefill instance (``engine_id``, ``side_channel_host``,
    ``side_channel_port``, ``dp_size``) are compared with its answer; none is needed.
    """

    name: str = "nixl_pull"
    concurrent: bool = False
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        del handoff, prefill, decode
        return Leg({"do_remote_decode": True, "do_remote_prefill": False})

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        del handoff, decode
        return Leg(nixl_answer.sound(returned, prefill, mode="pull"))

    def release(self, returned: Params | None, prefill: Instance | None = None) -> Params | None:
        """Decode reads or, with all of its prompt at hand, only tells prefill. Else the lease."""
        if not holds_blocks(returned):
            return None
        try:
            return nixl_answer.sound(returned, prefill, mode="pull")
        except DialectError:
            return None


def dialect(config: Mapping[str, Any]) -> Dialect:
    del config
    return NixlPull()
