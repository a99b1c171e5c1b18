"""What a prompt's KV weighs and costs."""

import pytest

from splitserve.doctor.costs import link_of, memcpy_of, prompt_costs, transfer_ms
from splitserve.doctor.findings import ModelKV

from .made import link, links, pair

LLAMA_70B = ModelKV("llama", kv_token_bytes=320 << 10, max_model_len=131_072, weight_bytes=0)


def test_time_is_bytes_over_rate_and_the_latency() -> None:
    assert transfer_ms(2_000_000_000, link(gb_per_s=4.0, latency_ms=3.0)) == pytest.approx(503.0)


def test_every_length_is_costed_on_every_measured_path() -> None:
    missing = link("cuda_ipc", state="missing")
    costs = prompt_costs(LLAMA_70B, [*links(), missing], ttft_target_ms=1000.0)
    assert [(cost.tokens, cost.path) for cost in costs] == [
        (tokens, one.path) for tokens in (1024, 8192, 32768) for one in links()
    ]
    long = next(cost for cost in costs if (cost.tokens, cost.path) == (8192, "shm"))
    assert long.kv_bytes == 8192 * 320 * 1024
    assert long.ms == pytest.approx(long.kv_bytes / 6e6 + 0.1)
    assert long.of_target == pytest.approx(long.ms / 1000)


def test_a_pairs_link_is_the_slowest_of_its_path() -> None:
    near, far = link(ends=("numa0", "numa0")), link(ends=("numa0", "numa1"), gb_per_s=2.0)
    assert link_of(pair(), [near, far]) == far
    assert link_of(pair(path="tcp"), [near, far]) is None
    assert link_of(pair(), [link(state="failed")]) is None


def test_a_pair_on_gpus_has_links_of_gpus_only() -> None:
    host = link("nixl")
    gpus = link("nixl", ("cuda:0", "cuda:1"), gb_per_s=50.0)
    assert link_of(pair(path="nixl", on_gpu=True), [host, gpus]) == gpus
    assert link_of(pair(path="nixl"), [host, gpus]) == host


def test_links_are_compared_with_the_copy_of_their_own_device() -> None:
    host, gpus = link("memcpy"), link("memcpy", ("cuda:0", "cuda:1"))
    assert memcpy_of(link("shm", ("numa0", "numa1")), [gpus, host]) == host
    assert memcpy_of(link("cuda_ipc", ("cuda:0", "cuda:1")), [host, gpus]) == gpus
    assert memcpy_of(link("cuda_ipc", ("cuda:0", "cuda:2")), [host, gpus]) is None
