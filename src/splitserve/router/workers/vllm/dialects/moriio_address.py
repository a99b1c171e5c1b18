"""How MoRI-IO is told who the peer is: in the request id, and after vLLM 0.23 also in keys."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from splitserve.ids import HandoffId
from splitserve.router.workers.vllm.dialects.base import Instance
from splitserve.router.workers.vllm.dialects.checks import fact

NEEDS: Final = ("side_channel_host", "handshake_port", "notify_port", "tp_size")


def request_id(handoff: HandoffId, prefill: Instance, decode: Instance) -> dict[str, str]:
    """The ``X-Request-Id`` of both legs, as header. It is the handoff's own and nobody else's.

    A client may choose a part of the handoff's name: runs of ``_`` are shortened, so that it cannot
    put an address of its own before ours.
    """
    name = re.sub(r"_+", "_", handoff)
    end = blake2b(handoff.encode(), digest_size=16).hexdigest()
    return {
        "X-Request-Id": f"{name}___prefill_addr_{_zmq(prefill)}___decode_addr_{_zmq(decode)}_{end}"
    }


def peer(instance: Instance) -> dict[str, Any]:
    """The keys that describe the other side to an instance."""
    params = {
        "remote_host": fact(instance, "side_channel_host"),
        "remote_handshake_port": fact(instance, "handshake_port"),
        "remote_notify_port": fact(instance, "notify_port"),
        "remote_tp_size": fact(instance, "tp_size"),
        "remote_dp_size": instance.facts.get("dp_size", 1),
    }
    rank = instance.facts.get("dp_rank")
    return params if rank is None else params | {"remote_dp_rank": rank}


def rank(prefill: Instance) -> Mapping[str, str]:
    """Header that pins prefill's data-parallel rank to the one that decode is told of."""
    pinned = prefill.facts.get("dp_rank")
    return {} if pinned is None else {"X-data-parallel-rank": str(pinned)}


def _zmq(instance: Instance) -> str:
    host, handshake, notify = (fact(instance, key) for key in NEEDS[:3])
    return f"host:{host},handshake:{handshake},notify:{notify}"
