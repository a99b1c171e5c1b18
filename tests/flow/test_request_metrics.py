"""Answers that tell where their time went: parts that exist, and no more than the client waited."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from client import body
from cluster import FAKE, Cluster, running

from splitserve.lab.load.wire.answer import Answer
from splitserve.lab.load.wire.sse import SseEvent

GATEWAY = ("--enable-per-request-metrics",)
SLOW = (*FAKE, "--fake-step-ms", "3", "--fake-prefill-us-per-token", "500")
VLLM_NAMES = {
    "queue_time_ms",
    "time_to_first_token_ms",
    "generation_time_ms",
    "mean_itl_ms",
    "tokens_per_second",
}
PROMPT = list(range(20, 84))
NEW = 8


@pytest.fixture(scope="module")
def told(model: str) -> Iterator[Cluster]:
    roles = [("prefill", "p0"), ("decode", "d0")]
    with running(model, roles, SLOW, GATEWAY) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def single(model: str) -> Iterator[Cluster]:
    with running(model, [("colocated", "c0")], SLOW, GATEWAY) as cluster:
        yield cluster


def streamed(cluster: Cluster, **more: Any) -> tuple[Answer, float]:
    """The answer as the lab reads it, and how long the client waited for its first token, in ms."""
    answer, began = Answer(), time.monotonic()
    asked = body(cluster, PROMPT, NEW, stream=True, stream_options={"include_usage": True}, **more)
    url = f"{cluster.url}/v1/completions"
    with httpx.stream("POST", url, json=asked, timeout=30) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data:"):
                data = line.removeprefix("data:").strip().encode()
                answer.read(SseEvent(time.monotonic() - began, data, ""))
    first = next(t_s for t_s, count in answer.events if count)
    return answer, 1000 * first


def test_parts_of_a_split_answer_are_no_more_than_the_client_waited(told: Cluster) -> None:
    for _ in range(3):
        answer, ttft_ms = streamed(told)
        metrics = answer.metrics or {}
        assert metrics.keys() >= VLLM_NAMES
        assert min(metrics.values()) >= 0
        parts = ("admission_ms", "prefill_queue_time_ms", "prefill_time_ms")
        assert sum(metrics[part] for part in parts) <= metrics["gateway_ttft_ms"] <= ttft_ms
        assert metrics["kv_handoff_ms"] <= metrics["kv_handoff_upper_ms"]
        # The word of prefill's token may reach the gateway later than decode's worker.
        both = metrics["kv_handoff_ms"] + metrics["decode_first_step_ms"]
        assert both >= metrics["kv_handoff_upper_ms"] - 0.01
        assert answer.workers == {"prefill_worker": "p0", "decode_worker": "d0"}
        assert answer.tokens == NEW


def test_parts_of_a_whole_answer_are_no_more_than_the_client_waited(single: Cluster) -> None:
    answer, ttft_ms = streamed(single)
    metrics = answer.metrics or {}
    parts = ("admission_ms", "queue_time_ms", "time_to_first_token_ms")
    assert sum(metrics[part] for part in parts) <= metrics["gateway_ttft_ms"] <= ttft_ms
    assert not any("handoff" in name or "prefill" in name for name in metrics)
    assert answer.workers == {"worker": "c0"}


def test_a_body_tells_what_a_stream_does(told: Cluster) -> None:
    url = f"{told.url}/v1/completions"
    whole = httpx.post(url, json=body(told, PROMPT, NEW), timeout=30).json()
    assert whole["metrics"].keys() >= VLLM_NAMES | {"kv_handoff_ms", "prefill_worker"}
    chat = {"model": told.served, "prompt": PROMPT, "max_tokens": NEW, "n": 2}
    assert "metrics" not in httpx.post(url, json=chat, timeout=30).json()
