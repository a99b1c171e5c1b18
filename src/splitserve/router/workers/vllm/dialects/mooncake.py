"""MooncakeConnector: decode asks prefill's bootstrap server where to get its blocks from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects.base import Dialect, Instance, Leg, Params
from splitserve.router.workers.vllm.dialects.checks import fact, fields
from splitserve.router.workers.vllm.dialects.transfer import transfer_id

BOOTSTRAP_PATH: Final = "/query"
"""Below the fact ``bootstrap_addr``; its answer goes to ``engine_ids``."""

_RANK: Final = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Mooncake:
    """Both legs at once, joined by ``transfer_id``. Prefill returns nothing and has no lease: what
    decode never fetches stays 480 s. ``dp_rank`` pins prefill's data-parallel rank; ``engine_id``
    is that rank's."""

    name: str = "mooncake"
    concurrent: bool = True
    needs: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"prefill": ("engine_id", "bootstrap_addr")}
    )

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        del decode
        params = {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "transfer_id": transfer_id(handoff),
        }
        rank = prefill.facts.get("dp_rank")
        return Leg(params, {} if rank is None else {"X-data-parallel-rank": str(rank)})

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        del decode, returned
        return Leg(
            {
                "do_remote_decode": False,
                "do_remote_prefill": True,
                "remote_bootstrap_addr": fact(prefill, "bootstrap_addr"),
                "remote_engine_id": str(fact(prefill, "engine_id")),
                "transfer_id": transfer_id(handoff),
            }
        )

    def release(self, returned: Params | None, prefill: Instance | None = None) -> None:
        del returned, prefill
        return None


def engine_ids(answer: object, source: str) -> dict[int, str]:
    """The engine id of each data-parallel rank, from a bootstrap server's answer to ``/query``.

    Raises DialectError, also when no rank has registered yet.
    """
    ranks = fields(answer, source)
    found = {}
    for rank in ranks.values:
        if _RANK.fullmatch(rank) is None:
            raise ranks.wrong(rank, "a data-parallel rank as key")
        found[int(rank)] = fields(ranks.values[rank], source).identity("engine_id")
    if not found:
        raise ranks.wrong("0", "the engine of rank 0: none has registered yet")
    return found


def dialect(config: Mapping[str, Any]) -> Dialect:
    del config
    return Mooncake()
