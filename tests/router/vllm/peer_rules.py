"""What each connector family of vLLM wants in the two legs, for the strict peers."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from router.vllm.peer_bodies import Seen, require
from router.vllm.strict_peers import BLOCK, Handed, serve

NIXL_PLACE: Final = {
    "remote_engine_id": "engine-p",
    "remote_host": "10.0.0.1",
    "remote_port": 5600,
    "tp_size": 2,
}


def blocks_of(seen: Seen) -> list[list[int]]:
    """One group: as many blocks as the prompt fills, counted from 7."""
    return [list(range(7, 7 + -(-len(seen.prompt) // BLOCK)))]


def flags(params: dict[str, Any] | None, *, decode: bool) -> dict[str, Any]:
    """The params, when they say which leg it is."""
    require(params is not None, "no kv_transfer_params")
    assert params is not None
    require(params.get("do_remote_decode", False) is not decode, "do_remote_decode is wrong")
    require(params.get("do_remote_prefill", False) is decode, "do_remote_prefill is wrong")
    return params


def only(params: dict[str, Any], *keys: str) -> None:
    """No key but the two flags and these."""
    extra = params.keys() - {"do_remote_decode", "do_remote_prefill", *keys}
    require(not extra, f"unexpected {sorted(extra)}")


def equal(params: dict[str, Any], want: dict[str, Any]) -> None:
    for key, value in want.items():
        require(key in params, f"{key} is missing")
        require(params[key] == value, f"{key} is {params[key]!r}, not {value!r}")


def no_rank(seen: Seen) -> None:
    require("X-data-parallel-rank" not in seen.headers, "a rank is pinned where there is one")


class NoWords:
    """Connectors that find KV by content, and no connector at all: no params anywhere."""

    concurrent = False

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.prefill_facts: dict[str, Any] = {}
        self.decode_facts: dict[str, Any] = {}

    def prefill(self, seen: Seen, handed: Handed) -> None:
        no_rank(seen)
        require(bool(self.config), "no connector: the prefill leg is work for nothing")
        require(seen.params is None, "params for a connector that reads none")

    def decode(self, seen: Seen, handed: Handed) -> None:
        no_rank(seen)
        require(seen.params is None, "params for a connector that reads none")


class PullRules:
    """NIXL pull. ``old`` answers as vLLM 0.23 does, without the newer keys."""

    concurrent = False
    mode = "pull"
    connector = "NixlConnector"

    def __init__(self, config: dict[str, Any] | None = None, *, old: bool = False) -> None:
        self.config = config or {"kv_connector": self.connector, "kv_role": "kv_both"}
        self.old = old
        self.prefill_facts: dict[str, Any] = {
            "engine_id": NIXL_PLACE["remote_engine_id"],
            "side_channel_host": NIXL_PLACE["remote_host"],
            "side_channel_port": NIXL_PLACE["remote_port"],
            "tp_size": NIXL_PLACE["tp_size"],
        }
        self.decode_facts: dict[str, Any] = {}

    def prefill(self, seen: Seen, handed: Handed) -> dict[str, Any]:
        no_rank(seen)
        params = flags(seen.params, decode=False)
        only(params, "remote_engine_id", "remote_block_ids", "remote_host", "remote_port")
        for key in params.keys() - {"do_remote_decode", "do_remote_prefill"}:
            require(params[key] is None, f"{key} is not null: prefill would read from there")
        return self.returned(seen)

    def returned(self, seen: Seen) -> dict[str, Any]:
        old = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": blocks_of(seen),
            "remote_request_id": seen.internal_id,
            "remote_num_tokens": len(seen.prompt),
            **NIXL_PLACE,
        }
        if self.old:
            return old
        return old | {
            "dcp_size": 1,
            "pp_size": 1,
            "remote_blocks_expiry_time": None,
            "transfer_mode": self.mode,
            "remote_prefill_cached_tokens": 0,
            "of_a_newer_version": {"a": [1]},
            "_p_side_truncated": True,
        }

    def decode(self, seen: Seen, handed: Handed) -> None:
        no_rank(seen)
        params = flags(seen.params, decode=True)
        assert handed.returned is not None
        want = {key: value for key, value in handed.returned.items() if key[0] != "_"}
        equal(params, want)
        only(params, *want)


class PushRules(PullRules):
    concurrent = True
    mode = "push"
    connector = "NixlPushConnector"

    def prefill(self, seen: Seen, handed: Handed) -> dict[str, Any]:
        no_rank(seen)
        params = flags(seen.params, decode=False)
        only(params, "transfer_id")
        require(bool(params.get("transfer_id")), "transfer_id is missing")
        handed.agree("transfer_id", params["transfer_id"])
        return self.returned(seen)

    def decode(self, seen: Seen, handed: Handed) -> None:
        no_rank(seen)
        params = flags(seen.params, decode=True)
        require("remote_block_ids" not in params, "remote_block_ids in push mode")
        equal(params, NIXL_PLACE | {"pp_size": 1} if not self.old else NIXL_PLACE)
        require(bool(params.get("remote_request_id")), "remote_request_id is missing")
        newer = () if handed.returned is None else handed.returned.keys()
        only(params, *NIXL_PLACE, "pp_size", "remote_request_id", "transfer_id", *newer)
        require("_p_side_truncated" not in params, "a note of vLLM's own came along")
        require(bool(params.get("transfer_id")), "transfer_id is missing")
        handed.agree("transfer_id", params["transfer_id"])


class MooncakeRules:
    """Mooncake with two data-parallel ranks, of which the second is used."""

    concurrent = True

    def __init__(self, bootstrap_addr: str) -> None:
        self.config = {"kv_connector": "MooncakeConnector"}
        self.prefill_facts: dict[str, Any] = {
            "bootstrap_addr": bootstrap_addr,
            "engine_id": "engine-1",
            "dp_rank": 1,
        }
        self.decode_facts: dict[str, Any] = {}

    def prefill(self, seen: Seen, handed: Handed) -> None:
        params = flags(seen.params, decode=False)
        only(params, "transfer_id")
        require(bool(params.get("transfer_id")), "transfer_id is missing")
        handed.agree("transfer_id", params["transfer_id"])
        require(seen.headers.get("X-data-parallel-rank") == "1", "rank 1 is not pinned")

    def decode(self, seen: Seen, handed: Handed) -> None:
        no_rank(seen)
        params = flags(seen.params, decode=True)
        address = self.prefill_facts["bootstrap_addr"]
        equal(params, {"remote_bootstrap_addr": address, "remote_engine_id": "engine-1"})
        only(params, "remote_bootstrap_addr", "remote_engine_id", "transfer_id")
        require(bool(params.get("transfer_id")), "transfer_id is missing")
        handed.agree("transfer_id", params["transfer_id"])


@asynccontextmanager
async def bootstrap_server() -> AsyncIterator[str]:
    """Mooncake's server beside prefill; its address."""

    async def query(request: web.Request) -> web.Response:
        workers = {"0": {"0": "tcp://10.0.0.1:7000"}}
        ranks = {str(r): {"engine_id": f"engine-{r}", "worker_addr": workers} for r in range(2)}
        return web.json_response(ranks)

    app = web.Application()
    app.router.add_get("/query", query)
    runner = web.AppRunner(app, access_log=None)
    try:
        yield await serve(runner)
    finally:
        await runner.cleanup()


_PREFILL_ADDRESS: Final = re.compile(r"___prefill_addr_(.+?)___decode_addr_")
_DECODE_ADDRESS: Final = re.compile(r"___decode_addr_(.+)_[0-9a-f]{32}$")


class MoriioRules:
    """MoRI-IO. ``old`` answers as vLLM 0.23 does: only the request id says where prefill is."""

    def __init__(self, *, read: bool, old: bool = False) -> None:
        self.read = read
        self.old = old
        self.concurrent = not read
        self.config = {
            "kv_connector": "MoRIIOConnector",
            "kv_connector_extra_config": {"read_mode": str(read).lower()},
        }
        self.prefill_facts = _moriio_facts("10.0.0.1", tp_size=2)
        self.decode_facts = _moriio_facts("fd00::2", tp_size=4)

    def prefill(self, seen: Seen, handed: Handed) -> dict[str, Any]:
        no_rank(seen)
        params = flags(seen.params, decode=False)
        require(bool(params.get("transfer_id")), "transfer_id is missing")
        handed.agree("transfer_id", params["transfer_id"])
        _addressed(_DECODE_ADDRESS, seen, self.decode_facts)
        if self.read:
            only(params, "transfer_id")
        else:
            self._described(params, self.decode_facts)
        return self._returned(seen, params)

    def decode(self, seen: Seen, handed: Handed) -> None:
        no_rank(seen)
        params = flags(seen.params, decode=True)
        require(bool(params.get("transfer_id")), "transfer_id is missing")
        handed.agree("transfer_id", params["transfer_id"])
        if not seen.request_id.endswith("-release"):
            _addressed(_PREFILL_ADDRESS, seen, self.prefill_facts)
        if self.read:
            assert handed.returned is not None
            equal(params, handed.returned)
        else:
            self._described(params, self.prefill_facts)

    def _described(self, params: dict[str, Any], facts: dict[str, Any]) -> None:
        want = {
            "remote_block_ids": [],
            "remote_engine_id": None,
            "remote_host": facts["side_channel_host"],
            "remote_handshake_port": facts["handshake_port"],
            "remote_notify_port": facts["notify_port"],
            "remote_tp_size": facts["tp_size"],
            "remote_dp_size": 1,
        }
        equal(params, want)
        only(params, "transfer_id", *want)

    def _returned(self, seen: Seen, params: dict[str, Any]) -> dict[str, Any]:
        old = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": blocks_of(seen),
            "remote_engine_id": "engine-p",
            "tp_size": self.prefill_facts["tp_size"],
            "transfer_id": params["transfer_id"],
        }
        if self.old:
            return old
        return old | {
            "remote_host": self.prefill_facts["side_channel_host"],
            "remote_handshake_port": self.prefill_facts["handshake_port"],
            "remote_notify_port": self.prefill_facts["notify_port"],
            "remote_dp_rank": 0,
            "remote_dp_rank_override": True,
            "remote_dp_size": 1,
            "remote_dp_size_local": 1,
        }


def _moriio_facts(host: str, tp_size: int) -> dict[str, Any]:
    return {
        "side_channel_host": host,
        "handshake_port": 6301,
        "notify_port": 61005,
        "tp_size": tp_size,
    }


def _addressed(pattern: re.Pattern[str], seen: Seen, facts: dict[str, Any]) -> None:
    """The request id must name the other side as vLLM's own pattern reads it."""
    found = pattern.search(seen.request_id)
    require(found is not None, "X-Request-Id has no address of the other side")
    assert found is not None
    parts = dict(part.split(":", 1) for part in found.group(1).split(","))
    want = {
        "host": facts["side_channel_host"],
        "handshake": str(facts["handshake_port"]),
        "notify": str(facts["notify_port"]),
    }
    require(parts == want, f"X-Request-Id names {parts}, not {want}")


class LMCacheRules(NoWords):
    """LMCache V1; with ``receiver`` decode takes KV straight from prefill."""

    def __init__(self, *, receiver: bool) -> None:
        super().__init__({"kv_connector": "LMCacheConnectorV1"})
        if receiver:
            self.decode_facts = {
                "receiver_host": "10.0.0.2",
                "receiver_init_port": [7300],
                "receiver_alloc_port": [7400],
            }

    def prefill(self, seen: Seen, handed: Handed) -> None:
        if not self.decode_facts:
            return super().prefill(seen, handed)
        no_rank(seen)
        require(seen.params is not None, "no kv_transfer_params")
        assert seen.params is not None
        require(seen.params.keys() == {"disagg_spec"}, "not exactly a disagg_spec")
        spec = dict(seen.params["disagg_spec"])
        require(isinstance(spec.pop("req_id", None), str), "disagg_spec has no req_id")
        require(spec == self.decode_facts, f"disagg_spec says {spec}")
        return None


class P2PRules:
    """OffloadingConnector with a P2P tier."""

    concurrent = True

    def __init__(self) -> None:
        self.config = {
            "kv_connector": "OffloadingConnector",
            "kv_connector_extra_config": {"secondary_tiers": [{"type": "fs"}, {"type": "p2p"}]},
        }
        self.prefill_facts: dict[str, Any] = {"p2p_host": "10.0.0.1", "p2p_port": 5710}
        self.decode_facts: dict[str, Any] = {}

    def prefill(self, seen: Seen, handed: Handed) -> None:
        no_rank(seen)
        told = self._only(seen, "remote_decoder", {"kv_request_id"})
        handed.agree("kv_request_id", told["kv_request_id"])

    def decode(self, seen: Seen, handed: Handed) -> None:
        no_rank(seen)
        keys = {"kv_request_id", "remote_host", "remote_port"}
        told = self._only(seen, "remote_prefiller", keys)
        equal(told, {"remote_host": "10.0.0.1", "remote_port": 5710})
        handed.agree("kv_request_id", told["kv_request_id"])

    def _only(self, seen: Seen, name: str, keys: set[str]) -> dict[str, Any]:
        params = seen.params or {}
        require(params.keys() == {name}, f"not exactly {name}")
        told: dict[str, Any] = params[name]
        require(told.keys() == keys and bool(told["kv_request_id"]), f"{name} is {told}")
        return told
