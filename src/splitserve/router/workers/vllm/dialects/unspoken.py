"""Connectors that find KV by the hash of its tokens: nothing is said in either leg."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects.base import Instance, Leg, Params


@dataclass(frozen=True, slots=True)
class Unspoken:
    """Decode comes after prefill's answer: what is not stored by then is computed again. Nothing
    is held for decode, so nothing is released."""

    name: str
    concurrent: bool = False
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        del handoff, prefill, decode
        return Leg()

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        del handoff, prefill, decode, returned
        return Leg()

    def release(self, returned: Params | None, prefill: Instance | None = None) -> None:
        del returned, prefill
        return None
