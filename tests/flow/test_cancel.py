"""A thousand requests are given up at random moments: nothing of them stays."""

import asyncio
import random
from collections.abc import Iterator

import aiohttp
import pytest
from client import body, complete
from cluster import FAKE, Cluster, running
from faults.rig import truth

REQUESTS = 1000
AT_A_TIME = 100
WITHIN_S = 2.0
MAX_TOKENS = 400


@pytest.fixture
def cluster(model: str) -> Iterator[Cluster]:
    flags = (*FAKE, "--fake-num-blocks", "4096", "--fake-step-ms", "5")
    flags = (*flags, "--fake-prefill-us-per-token", "100", "--max-num-seqs", "128")
    with running(model, [("prefill", "p0"), ("decode", "d0")], flags) as cluster:
        yield cluster


class Quitter:
    """Gives each of its requests up after a random time, by closing the connection or by asking
    for the abort of its id."""

    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession, seed: int) -> None:
        self._cluster = cluster
        self._url = cluster.url
        self._session = session
        self._random = random.Random(seed)
        self._seed = seed

    async def run(self, count: int) -> None:
        for number in range(count):
            name = f"quit-{self._seed}-{number}"
            ids = [300 + self._random.randrange(1000) for _ in range(self._random.randint(1, 120))]
            asking = asyncio.create_task(self._ask(name, ids))
            await asyncio.sleep(self._random.uniform(0, 0.4))  # the random moment itself
            if self._random.random() < 0.5:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            else:
                while not asking.done():
                    await self._abort(name)
                    await asyncio.wait([asking], timeout=0.2)
                await asking

    async def _ask(self, name: str, ids: list[int]) -> None:
        asked = body(self._cluster, ids, MAX_TOKENS, stream=self._random.random() < 0.7)
        headers = {"x-request-id": name}
        url = f"{self._url}/v1/completions"
        async with self._session.post(url, json=asked, headers=headers) as answer:
            await answer.read()

    async def _abort(self, name: str) -> None:
        asked = {"request_ids": [f"cmpl-{name}"]}
        async with self._session.post(
            f"{self._url}/inference/v1/abort_requests", json=asked
        ) as answer:
            assert answer.status == 200, await answer.text()


async def test_a_thousand_aborts_free_everything_within_two_seconds(cluster: Cluster) -> None:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        quitters = [Quitter(cluster, session, seed) for seed in range(AT_A_TIME)]
        await asyncio.gather(*(quitter.run(REQUESTS // AT_A_TIME) for quitter in quitters))
    await asyncio.to_thread(cluster.assert_settles, WITHIN_S)
    outcomes = {
        dict(labels)["outcome"]: count
        for (name, labels), count in (await asyncio.to_thread(cluster.metrics)).items()
        if name == "splitserve_generations_total"
    }
    assert sum(outcomes.values()) <= REQUESTS
    assert outcomes["cancelled"] > REQUESTS / 2
    ids = [300 + i for i in range(40)]
    assert await asyncio.to_thread(complete, cluster, ids, 8) == truth(ids, 8)
