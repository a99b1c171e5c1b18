"""A small real model over connectors between hosts, with several heads, between pools of equal
and unequal blocks: the answers are those of one worker alone.

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

from connectors.usable import need, over

pytestmark = pytest.mark.interop  # for its length; make test has a real model over shm

FLAGS = ("--dtype", "float32", "--kv-cache-memory-bytes", "8MiB", "--max-num-batched-tokens", "64")
BLOCK = 16
"""Of the worker that does all alone, and of prefill workers."""

DECODE_BLOCKS = {"equal": BLOCK, "unequal": 24}
RUN = {"tcp": ["equal"], "nixl": ["equal", "unequal"], "mooncake": ["equal", "unequal"]}
"""Each is a deployment of its own."""

LAST_BITS = 1e-5
"""Sums over blocks of another size are rounded elsewhere, also where nothing moves."""

NEW = 16


@dataclass(frozen=True)
class Pair:
    cluster: Cluster
    decode_block: int

    @property
    def tolerance(self) -> float:
        return 0.0 if self.decode_block == BLOCK else LAST_BITS


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
    heads = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
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


def deployments() -> Iterator[object]:
    for connector, run in RUN.items():
        for blocks in run:
            yield over(connector, blocks)


@pytest.fixture(scope="module", params=deployments())
def pair(weighed: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    connector, blocks = request.param
    need(connector)
    decode_block = DECODE_BLOCKS[blocks]
    roles = [("prefill", "p0"), ("decode", "d0")]
    flags = (*FLAGS, "--connector", connector)
    own_flags = {"d0": ("--block-size", str(decode_block))}
    with running(weighed, roles, flags, own_flags=own_flags) as cluster:
        yield Pair(cluster, decode_block)


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
    there = (len(ids) - 1) // pair.decode_block * pair.decode_block
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
        assert stream.tokens == alone.answer(ids).tokens
    assert split.total("splitserve_fallback_total") == 0
    split.assert_settles()
