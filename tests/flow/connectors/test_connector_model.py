"""A small real model over every connector, with several heads, between pools of equal and unequal
blocks and shards: the answers are those of one worker alone that is not split.

With them is compared how likely each token was held. A bit that is lost on the way to the decode
worker changes that for every later token.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from client import Stream, body, complete
from cluster import Cluster, running, wait_until
from tiny_model import make_model_folder, make_weights

from connectors.sides import DECODE, PREFILL, Side, Sides
from connectors.usable import deployments, need

pytestmark = pytest.mark.timeout(300)

FLAGS = ("--dtype", "float32", "--kv-cache-memory-bytes", "8MiB", "--max-num-batched-tokens", "64")
BLOCK = 16
"""Of the worker that does all alone, and of prefill workers."""

SHAPES = {
    "equal": Sides(Side(BLOCK), Side(BLOCK)),
    "unequal": Sides(Side(BLOCK), Side(24)),
    "split_at_decode": Sides(Side(BLOCK), Side(BLOCK, shards=2)),
    "split_at_prefill": Sides(Side(BLOCK, shards=2), Side(BLOCK)),
    "all_unlike": Sides(Side(BLOCK, shards=2), Side(24, shards=4)),
}
RUN = {"tcp": ["all_unlike"]}
"""By ``make test``, which has a real model over shm too."""

LAST_BITS = 1e-5
"""Sums over blocks of another size and over shards are rounded elsewhere, also where nothing
moves."""

NEW = 16


@dataclass(frozen=True)
class Pair:
    cluster: Cluster
    sides: Sides

    @property
    def tolerance(self) -> float:
        return 0.0 if self.sides == SHAPES["equal"] else LAST_BITS


@dataclass(frozen=True)
class Scored:
    tokens: list[int]
    logprobs: list[float]


def scored(cluster: Cluster, ids: Sequence[int]) -> Scored:
    asked: dict[str, Any] = body(cluster, ids, NEW, ignore_eos=True, logprobs=1)
    answer = httpx.post(f"{cluster.url}/v1/completions", json=asked, timeout=30)
    (choice,) = answer.json()["choices"]
    return Scored(choice["token_ids"], choice["logprobs"]["token_logprobs"])


@pytest.fixture(scope="module")
def weighed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = make_model_folder(tmp_path_factory.mktemp("weighed") / "tiny")
    config = json.loads((folder / "config.json").read_text())
    heads = {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 4}
    (folder / "config.json").write_text(json.dumps(config | heads))
    make_weights(folder)
    return str(folder)


@dataclass
class Alone:
    """One worker that does all. It is asked once for each prompt: what it finds in its prefix cache
    it adds up in another order."""

    cluster: Cluster
    known: dict[tuple[int, ...], Scored] = field(default_factory=dict)

    def answer(self, ids: Sequence[int]) -> Scored:
        key = tuple(ids)
        if key not in self.known:
            self.known[key] = scored(self.cluster, ids)
        return self.known[key]


@pytest.fixture(scope="module")
def alone(weighed: str) -> Iterator[Alone]:
    with running(weighed, [("colocated", "c0")], FLAGS) as cluster:
        yield Alone(cluster)


@pytest.fixture(scope="module", params=deployments(list(SHAPES), RUN))
def pair(weighed: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    connector, shape = request.param
    need(connector)
    sides = SHAPES[shape]
    roles = [("prefill", PREFILL), ("decode", DECODE)]
    flags = (*FLAGS, "--connector", connector)
    with running(weighed, roles, flags, own_flags=sides.flags) as cluster:
        sides.check(cluster)
        yield Pair(cluster, sides)


def prompt(seed: int, length: int) -> list[int]:
    """None begins like that of another seed."""
    return [300 + (seed * 131 + i * (7 + seed)) % 1100 for i in range(length)]


@pytest.mark.parametrize("length", [1, 16, 24, 49, 200])
def test_pushed(pair: Pair, alone: Alone, length: int) -> None:
    split, ids = pair.cluster, prompt(length, length)
    moved = split.total("splitserve_handoff_bytes_total")
    ours, expected = scored(split, ids), alone.answer(ids)
    assert ours.tokens == expected.tokens
    assert ours.logprobs == pytest.approx(expected.logprobs, rel=0, abs=pair.tolerance)
    assert split.total("splitserve_handoff_bytes_total") > moved
    assert split.total("splitserve_fallback_total") == 0
    split.assert_settles()


def test_pulled(pair: Pair, alone: Alone) -> None:
    split, ids = pair.cluster, prompt(3, 60)
    ids += complete(split, ids, 60, ignore_eos=True)
    there = (len(ids) - 1) // pair.sides.decode.block * pair.sides.decode.block
    ids += prompt(4, 10)
    before = split.total("splitserve_pulled_tokens_total")
    assert complete(split, ids, NEW, ignore_eos=True) == alone.answer(ids).tokens
    pulled = before + (there // BLOCK - 60 // BLOCK) * BLOCK

    def brought() -> float:
        return split.total("splitserve_pulled_tokens_total")

    wait_until(lambda: brought() == pulled, 5, lambda: f"{brought()} were pulled, not {pulled}")
    assert split.total("splitserve_fallback_total") == 0
    split.assert_settles()


def test_many_at_once(pair: Pair, alone: Alone) -> None:
    split = pair.cluster
    prompts = [prompt(300 + n, 1 + n * n * 4) for n in range(8)]
    streams = [Stream(split, ids, NEW, ignore_eos=True) for ids in prompts]
    for ids, stream in zip(prompts, streams, strict=True):
        stream.read_all()
        assert stream.tokens == alone.answer(ids).tokens, (stream.status, stream.errors)
    assert split.total("splitserve_fallback_total") == 0
    split.assert_settles()
