"""What a NIXL instance returns, pulled or pushed: the checks that both modes share."""

from typing import Any

from splitserve.router.workers.vllm.dialects.base import Instance, Params
from splitserve.router.workers.vllm.dialects.checks import Fields, fields


def sound(
    returned: Params | None, instance: Instance | None, *, mode: str, prefilled: bool = True
) -> dict[str, Any]:
    """The dict as it may go to the other instance.

    ``mode`` is ``pull`` or ``push``. ``prefilled``: the blocks are prefill's, for decode; else
    decode's, for the prefill of the next turn. ``instance`` is who returned it, None when that is
    not known any more. vLLM 0.23 lacks ``transfer_mode``, ``dcp_size``, ``pp_size`` and
    ``remote_blocks_expiry_time``. Raises DialectError.
    """
    found = fields(returned, instance.url if instance else "prefill")
    found.exactly("do_remote_prefill", prefilled)
    found.exactly("do_remote_decode", not prefilled)
    found.blocks("remote_block_ids")
    found.identity("remote_engine_id")
    found.identity("remote_request_id")
    found.host("remote_host")
    found.port("remote_port")
    found.size("tp_size")
    _optional(found, mode)
    if instance is not None:
        _at_home(found, instance)
    return found.passed_on()


def _optional(found: Fields, mode: str) -> None:
    for key in ("dcp_size", "pp_size"):
        if found.given(key):
            found.size(key)
    for key in ("remote_num_tokens", "remote_prefill_cached_tokens"):
        if found.told(key):
            found.count(key)
    if found.told("remote_blocks_expiry_time"):
        found.moment("remote_blocks_expiry_time")
    if found.given("transfer_mode"):
        found.exactly("transfer_mode", mode)


def _at_home(found: Fields, instance: Instance) -> None:
    """Raises DialectError unless the address is the instance's own, as far as it is known.

    Data-parallel ranks count up from the known port and put ``_dp<rank>`` behind the engine id.
    """
    facts = instance.facts
    host, port, engine = (
        facts.get(key) for key in ("side_channel_host", "side_channel_port", "engine_id")
    )
    if host is not None and found.host("remote_host") != host:
        raise found.wrong("remote_host", f"its own side channel {host}")
    if port is not None and found.port("remote_port") - port not in range(facts.get("dp_size", 1)):
        raise found.wrong("remote_port", f"its own side channel's port {port}")
    if engine is not None:
        name = found.identity("remote_engine_id")
        if name != str(engine) and not name.startswith(f"{engine}_dp"):
            raise found.wrong("remote_engine_id", f"its own id {engine}")
