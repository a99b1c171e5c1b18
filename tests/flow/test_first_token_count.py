"""The gateway's histogram of first tokens counts answers that had one, and nothing else."""

import asyncio
import json
from collections.abc import Iterator

import aiohttp
import pytest
from client import body
from cluster import FAKE, Cluster, running, wait_until

PLAIN, LEFT_BEFORE, LEFT_AFTER, TWICE = 170, 10, 10, 10
PROMPT, BLOCK = 64, 4
PREFILL_S = 0.0064


@pytest.fixture
def cluster(model: str) -> Iterator[Cluster]:
    """Prompts are computed in chunks of 32 tokens, which take a set time."""
    flags = (*FAKE, "--fake-num-blocks", "4096", "--max-num-batched-tokens", "32")
    flags = (*flags, "--fake-prefill-us-per-token", "100", "--no-enable-prefix-caching")
    with running(model, [("prefill", "p0"), ("decode", "d0")], flags) as cluster:
        yield cluster


def prompt(number: int) -> list[int]:
    """Another one for every number below a thousand."""
    return [300 + (number * 7 + at * at) % 1000 for at in range(PROMPT)]


async def ask(session: aiohttp.ClientSession, cluster: Cluster, number: int, n: int = 1) -> int:
    """Choices of a whole answer."""
    asked = body(cluster, prompt(number), 4, n=n)
    async with session.post(f"{cluster.url}/v1/completions", json=asked) as answer:
        assert answer.status == 200
        return len((await answer.json())["choices"])


async def leave_after_first(session: aiohttp.ClientSession, cluster: Cluster, number: int) -> None:
    asked = body(cluster, prompt(number), 400, stream=True)
    async with session.post(f"{cluster.url}/v1/completions", json=asked) as answer:
        async for line in answer.content:
            if line.startswith(b"data: ") and json.loads(line[6:])["choices"][0]["token_ids"]:
                answer.close()
                return


async def leave_before_first(cluster: Cluster, numbers: range) -> None:
    """With the prefill worker standing still no first token can be on its way."""
    await asyncio.to_thread(cluster.assert_settles)
    cluster.workers["p0"].freeze()
    cancelled = cluster.total("splitserve_requests_total", outcome="cancelled")
    async with aiohttp.ClientSession() as session:
        asking = [asyncio.create_task(ask(session, cluster, number)) for number in numbers]
        room = len(numbers) * PROMPT // BLOCK
        await asyncio.to_thread(
            wait_until, lambda: granted(cluster) >= room, 10, lambda: f"{granted(cluster)} blocks"
        )
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    wanted = cancelled + len(numbers)
    await asyncio.to_thread(
        wait_until,
        lambda: cluster.total("splitserve_requests_total", outcome="cancelled") >= wanted,
        10,
        lambda: f"{cluster.total('splitserve_requests_total')} requests",
    )
    cluster.workers["p0"].thaw()


def granted(cluster: Cluster) -> int:
    return sum(states["granted"] for states in cluster.kv_blocks().values())


async def test_f16_first_tokens_are_counted_once_for_each_choice_that_had_one(
    cluster: Cluster,
) -> None:
    limit = aiohttp.TCPConnector(limit=16)
    async with aiohttp.ClientSession(connector=limit) as session:
        plain = [ask(session, cluster, number) for number in range(PLAIN)]
        twice = [ask(session, cluster, 200 + number, n=2) for number in range(TWICE)]
        choices = await asyncio.gather(*plain, *twice)
        for number in range(LEFT_AFTER):
            await leave_after_first(session, cluster, 400 + number)
    await leave_before_first(cluster, range(600, 600 + LEFT_BEFORE))
    assert sum(choices) == PLAIN + 2 * TWICE
    cluster.assert_settles()
    had_one = PLAIN + 2 * TWICE + LEFT_AFTER
    assert cluster.total("splitserve_ttft_seconds_count") == had_one
    # Chunks of a prompt are no first tokens: none came before its prompt was computed.
    assert cluster.total("splitserve_ttft_seconds_bucket", le="0.005") == 0
    assert cluster.total("splitserve_ttft_seconds_sum") >= PREFILL_S * had_one
