"""What a MoRI-IO prefill instance returns in read mode."""

from typing import Any, Final

from splitserve.router.workers.vllm.dialects.base import Instance, Params
from splitserve.router.workers.vllm.dialects.checks import Fields, fields

ADDRESS: Final = {
    "remote_host": "side_channel_host",
    "remote_handshake_port": "handshake_port",
    "remote_notify_port": "notify_port",
}
"""Returned key, and the fact that it must equal."""


def sound(
    returned: Params | None, prefill: Instance | None, transfer_id: str | None
) -> dict[str, Any]:
    """The dict as it may go to decode. vLLM 0.23 returns no address and no data-parallel sizes.

    ``transfer_id`` is what the answer must carry, None when not known any more. Raises
    DialectError.
    """
    found = fields(returned, prefill.url if prefill else "prefill")
    found.exactly("do_remote_prefill", True)
    found.exactly("do_remote_decode", False)
    found.blocks("remote_block_ids")
    found.identity("remote_engine_id")
    found.size("tp_size")
    if transfer_id is None:
        found.identity("transfer_id")
    else:
        found.exactly("transfer_id", transfer_id)
    _optional(found)
    if any(found.given(key) for key in ADDRESS):
        _address(found, prefill)
    return found.passed_on()


def _optional(found: Fields) -> None:
    for key in ("remote_dp_size", "remote_tp_size"):
        if found.given(key):
            found.size(key)
    for key in ("remote_dp_rank", "remote_dp_size_local"):
        if found.given(key):
            found.count(key)
    if found.told("remote_prefill_cached_tokens"):
        found.count("remote_prefill_cached_tokens")
    for key in ("remote_dp_rank_override", "is_request_leader"):
        if found.given(key):
            found.boolean(key)


def _address(found: Fields, prefill: Instance | None) -> None:
    found.host("remote_host")
    found.port("remote_handshake_port")
    found.port("remote_notify_port")
    facts = prefill.facts if prefill else {}
    for key, known in ADDRESS.items():
        if known in facts and found.values[key] != facts[known]:
            raise found.wrong(key, f"its own {known} {facts[known]}")
