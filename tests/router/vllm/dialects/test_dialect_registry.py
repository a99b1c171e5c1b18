"""Every connector of vLLM has a dialect or a reason why not."""

from typing import Any

import pytest

from router.vllm.dialects.families import HANDOFF
from splitserve.errors import ConfigError
from splitserve.router.workers.vllm.dialects.base import DialectError, Instance
from splitserve.router.workers.vllm.dialects.registry import CANNOT_SPLIT, DIALECTS, dialect_for

VLLM_KNOWS = {
    "DecodeBenchConnector",
    "ExampleConnector",
    "ExampleHiddenStatesConnector",
    "FlexKVConnectorV1",
    "HF3FSKVConnector",
    "HiSparseConnector",
    "LMCacheConnectorV1",
    "LMCacheMPConnector",
    "MoRIIOConnector",
    "MooncakeConnector",
    "MooncakeStoreConnector",
    "MultiConnector",
    "NixlConnector",
    "NixlPullConnector",
    "NixlPushConnector",
    "OffloadingConnector",
    "P2pNcclConnector",
    "SimpleCPUOffloadConnector",
}
SIMPLE = {
    "ExampleConnector": "example",
    "FlexKVConnectorV1": "flexkv",
    "LMCacheConnectorV1": "lmcache",
    "LMCacheMPConnector": "lmcache_mp",
    "MoRIIOConnector": "moriio_write",
    "MooncakeConnector": "mooncake",
    "MooncakeStoreConnector": "mooncake_store",
    "NixlConnector": "nixl_pull",
    "NixlPullConnector": "nixl_pull",
    "NixlPushConnector": "nixl_push",
    "OffloadingConnector": "offloading",
}
ENDS = (Instance("http://p"), Instance("http://d"))


def multi(*children: Any) -> dict[str, Any]:
    named = [{"kv_connector": c} if isinstance(c, str) else c for c in children]
    return {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": named}}


def test_every_connector_is_decided_on() -> None:
    assert DIALECTS.keys() | CANNOT_SPLIT.keys() == VLLM_KNOWS
    assert DIALECTS.keys() & CANNOT_SPLIT.keys() == set()
    assert SIMPLE.keys() | {"MultiConnector"} == DIALECTS.keys()


@pytest.mark.parametrize("connector", SIMPLE)
def test_a_connector_has_its_dialect(connector: str) -> None:
    assert dialect_for({"kv_connector": connector}).name == SIMPLE[connector]


@pytest.mark.parametrize("read_mode", [True, "true", " True ", 1, "1"])
def test_moriio_reads_when_vllm_would(read_mode: object) -> None:
    extra = {"read_mode": read_mode}
    config = {"kv_connector": "MoRIIOConnector", "kv_connector_extra_config": extra}
    assert dialect_for(config).name == "moriio_read"


@pytest.mark.parametrize("read_mode", [False, "false", 0, "yes", None])
def test_moriio_writes_otherwise(read_mode: object) -> None:
    extra = {"read_mode": read_mode}
    config = {"kv_connector": "MoRIIOConnector", "kv_connector_extra_config": extra}
    assert dialect_for(config).name == "moriio_write"


@pytest.mark.parametrize("config", [None, {}, {"kv_connector": None}], ids=repr)
def test_no_connector_is_plain(config: dict[str, Any] | None) -> None:
    assert dialect_for(config).name == "plain"


@pytest.mark.parametrize("connector", sorted(CANNOT_SPLIT))
def test_a_connector_that_cannot_split_is_refused_with_cause_and_cure(connector: str) -> None:
    with pytest.raises(ConfigError, match=f"{connector} cannot split.*Use NixlConnector"):
        dialect_for({"kv_connector": connector})


def test_an_unknown_connector_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'Nixl' is none of .*NixlConnector"):
        dialect_for({"kv_connector": "Nixl"})


def test_a_connector_from_elsewhere_is_refused() -> None:
    config = {"kv_connector": "NixlConnector", "kv_connector_module_path": "mine"}
    with pytest.raises(ConfigError, match="kv_connector_module_path"):
        dialect_for(config)


@pytest.mark.parametrize(
    ("children", "name"),
    [
        (("NixlConnector", "OffloadingConnector"), "nixl_pull"),
        (("SimpleCPUOffloadConnector", "NixlPushConnector"), "nixl_push"),
        (("LMCacheConnectorV1", "MooncakeConnector"), "mooncake"),
        (("HiSparseConnector", "FlexKVConnectorV1", "LMCacheMPConnector"), "flexkv"),
        ((multi("NixlConnector"),), "nixl_pull"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_multi_speaks_as_the_child_that_hands_over(children: tuple[Any, ...], name: str) -> None:
    assert dialect_for(multi(*children)).name == name


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"kv_connector": "MultiConnector"}, "no child"),
        (multi("SimpleCPUOffloadConnector"), "no child"),
        (multi("NixlConnector", "MooncakeConnector"), r"nixl_pull and mooncake.*Leave one"),
        (multi("NixlConnector", "DecodeBenchConnector"), "DecodeBenchConnector cannot split"),
        (multi("NixlConnector", {}), "has no kv_connector"),
        (multi("NixlConnector", 3), "has no kv_connector"),
    ],
)
def test_multi_without_one_child_that_hands_over_is_refused(
    config: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        dialect_for(config)


@pytest.mark.parametrize(
    ("config", "fact"),
    [
        ({"kv_connector": "NixlPushConnector"}, "engine_id"),
        ({"kv_connector": "MooncakeConnector"}, "bootstrap_addr"),
        ({"kv_connector": "MoRIIOConnector"}, "side_channel_host"),
    ],
)
def test_a_fact_that_is_needed_and_not_known_is_named(config: dict[str, Any], fact: str) -> None:
    dialect = dialect_for(config)
    assert fact in dialect.needs["prefill"]
    with pytest.raises(DialectError, match=f"{fact} of http://p is not known"):
        dialect.decode(HANDOFF, *ENDS, None)


def test_a_half_known_lmcache_receiver_is_named() -> None:
    decode = Instance("http://d", {"receiver_host": "10.0.0.2"})
    with pytest.raises(DialectError, match="receiver_init_port of http://d"):
        dialect_for({"kv_connector": "LMCacheConnectorV1"}).prefill(HANDOFF, ENDS[0], decode)


def test_a_pinned_rank_is_the_same_in_both_moriio_legs() -> None:
    facts = {"side_channel_host": "h", "handshake_port": 1, "notify_port": 2, "tp_size": 1}
    prefill = Instance("http://p", facts | {"dp_rank": 3, "dp_size": 4})
    ends = (prefill, Instance("http://d", facts))
    dialect = dialect_for({"kv_connector": "MoRIIOConnector"})
    assert dialect.prefill(HANDOFF, *ends).headers["X-data-parallel-rank"] == "3"
    params = dialect.decode(HANDOFF, *ends, None).params
    assert params is not None
    assert (params["remote_dp_rank"], params["remote_dp_size"]) == (3, 4)
