"""Pages of /metrics, addresses and settings."""

import pytest

from splitserve.errors import ConfigError
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.workers.client import WorkerClient, WorkerEvents
from splitserve.router.workers.vllm.connect import connector
from splitserve.router.workers.vllm.exchange import Exchange
from splitserve.router.workers.vllm.load_metrics import (
    UNKNOWN_BLOCKS,
    StepWatch,
    kv_counts,
    load,
    read_metrics,
)
from splitserve.router.workers.vllm.settings import parse_address

PAGE = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.0
vllm:cache_config_info{block_size="128",enable_prefix_caching="True",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="128",enable_prefix_caching="True",num_gpu_blocks="100"} 1.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 5.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 11.0
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 32.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 64.0
process_start_time_seconds 1.79e+09
"""


def test_a_page_is_added_up_over_engines() -> None:
    report = load(read_metrics(PAGE), linked=("p",), role="decode")
    assert (report.running, report.waiting, report.steps, report.preemptions) == (5, 1, 11, 4)
    assert (report.prefix_hit_tokens, report.prefix_query_tokens) == (32, 64)
    assert (report.kv.free, report.kv.held, report.kv.total) == (150, 50, 200)
    assert (report.linked, report.role) == (("p",), "decode")
    assert read_metrics(PAGE).block_size == 128


def test_one_life_of_a_process_has_one_name() -> None:
    assert read_metrics(PAGE).started == read_metrics(PAGE).started != ""
    assert (
        read_metrics(PAGE.replace(b"1.79e+09", b"1.80e+09")).started != read_metrics(PAGE).started
    )
    assert read_metrics(b"").started == ""


def test_an_unknown_pool_never_stands_in_the_way() -> None:
    reading = read_metrics(b'vllm:cache_config_info{block_size="None",num_gpu_blocks="None"} 1.0')
    assert kv_counts(reading).free == UNKNOWN_BLOCKS


def test_only_work_without_steps_counts_as_a_stall() -> None:
    watch, page = StepWatch(), read_metrics(PAGE)
    assert watch.look(page, busy=True, now=1.0) == 0.0
    assert watch.look(page, busy=True, now=4.0) == 3.0
    assert watch.look(page, busy=False, now=5.0) == 0.0
    assert watch.look(page, busy=True, now=7.0) == 2.0
    later = read_metrics(PAGE.replace(b" 11.0", b" 12.0"))
    assert watch.look(later, busy=True, now=9.0) == 0.0


def test_an_address_holds_what_a_worker_is() -> None:
    worker = parse_address(
        "vllm+http://h:8001/base/?name=d&role=decode&connector=NixlConnector"
        "&kv_role=kv_both&side_channel_port=5600&max_num_seqs=64&priorities=1",
        "key",
    )
    assert (worker.name, worker.role, worker.url) == ("d", "decode", "http://h:8001/base")
    assert worker.kv_transfer_config == {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    assert worker.facts == {"side_channel_port": 5600}
    assert (worker.max_num_seqs, worker.priorities, worker.api_key) == (64, True, "key")
    assert "key" not in repr(worker)
    plain = parse_address("vllm+https://h:1")
    assert (plain.name, plain.role, plain.url) == ("h:1", "colocated", "https://h:1")


@pytest.mark.parametrize(
    "address",
    ["vllm+ftp://h:1", "vllm+http://", "vllm+http://h?role=x", "vllm+http://h?max_num_seqs=x"],
)
def test_a_bad_address_is_a_setting_to_mend(address: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        parse_address(address)


async def test_other_addresses_go_to_the_other_clients() -> None:
    asked: list[str] = []

    def others(address: str, events: WorkerEvents) -> WorkerClient:
        asked.append(address)
        raise ConfigError("not here")

    connect = connector(others, Exchange(asked.append), backoff_s=1, max_backoff_s=1)
    router = Router(RouterConfig(), [], gateway="g", connect=connect)
    with pytest.raises(ConfigError, match="not here"):
        router.workers.add("tcp:h:1")
    assert asked == ["tcp:h:1"]
    with pytest.raises(ConfigError, match="engine_id"):
        router.workers.add("vllm+http://h:1?role=prefill&connector=NixlPushConnector")
    router.workers.add("vllm+http://h:1?role=decode&connector=NixlConnector")
    await router.close()
