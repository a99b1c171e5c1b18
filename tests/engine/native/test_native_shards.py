"""A model in shards: the scores and the KV of the whole one, each pool with its share of heads."""

import json
import os
from collections.abc import Sequence
from itertools import product
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest
import torch
from native_rig import BLOCK, VOCAB, Saved, open_runner, reference, sampling, scores, sequences

from splitserve.engine.api import PushSpan
from splitserve.engine.config import EngineConfig, SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.native import NativeRunner
from splitserve.engine.opening import check_config
from splitserve.errors import ConfigError, UnavailableError
from splitserve.ids import RequestId
from splitserve.protocol.generate import GenerateRequest

POOL_BYTES = 1 << 19
BLOCK_BYTES = 3 * 2 * 2 * BLOCK * 16 * 4
"""Of one block in all layers of the Llama."""

CLOSE = {"rtol": 0.0, "atol": 5e-5}


def open_shards(path: Path, shards: int, **settings: Any) -> NativeRunner:
    defaults = {"kv_cache_memory_bytes": POOL_BYTES, "tensor_parallel_size": shards}
    return open_runner(path, **{**defaults, **settings})


def most_shards(model: Any) -> int:
    return int(model.config.num_key_value_heads)


def pools(runner: NativeRunner) -> list[torch.Tensor]:
    """The memory of each shard: ``[layer, block, K/V, kv_head, slot, head_dim]``."""
    regions = runner.regions()
    shards = runner.describe().layout.shards(len(regions))
    found = []
    for region, shard in zip(regions, shards, strict=True):
        shape = (shard.num_layers, shard.num_blocks, 2, shard.num_kv_heads)
        memory = torch.frombuffer(mmap(region.shared_fd, region.nbytes), dtype=torch.float32)
        found.append(memory.view(*shape, shard.block_size, shard.head_dim))
    return found


def test_shards_give_the_scores_of_transformers_and_the_kv_of_one(family: Saved) -> None:
    path, model = family
    kv = []
    for shards in (1, most_shards(model)):
        runner = open_shards(path, shards)
        long, short = sequences(runner, [30, 9])
        [found] = scores(runner, [long.row(20, None), short.row(9)])
        torch.testing.assert_close(found, reference(model, short.tokens)[-1], **CLOSE)
        short.tokens += [5, 77]
        for counts in ((10, 1), (0, 1)):
            active = [(s, n) for s, n in zip((long, short), counts, strict=True) if n]
            given = scores(runner, [sequence.row(count) for sequence, count in active])
            for values, (sequence, _) in zip(given, active, strict=True):
                expected = reference(model, sequence.tokens[: sequence.computed])[-1]
                torch.testing.assert_close(values, expected, **CLOSE)
        assert len(pools(runner)) == shards
        kv.append(torch.cat(pools(runner), 3))
        runner.close()
    assert kv[0].count_nonzero() > 0
    torch.testing.assert_close(*kv, **CLOSE)


def greedy(name: str, tokens: Sequence[int], max_tokens: int = 20) -> GenerateRequest:
    params = sampling(max_tokens=max_tokens, ignore_eos=True)
    return GenerateRequest(RequestId(name), tuple(tokens), params)


def answers(runner: NativeRunner, requests: Sequence[GenerateRequest]) -> list[list[int]]:
    """Of requests in company; then the first is asked twice more and finds its prefix."""
    engine = EngineCore(runner, SchedulerConfig(8, 16))
    found: dict[RequestId, list[int]] = {request.request_id: [] for request in requests}
    for company in (requests, requests[:1], requests[:1]):
        for request in company:
            engine.add(request)
        while engine.has_work():
            for output in engine.step():
                found[output.request_id].append(output.token_id)
    assert engine.stats().preemptions > 0
    assert engine.stats().prefix_hit_tokens > 0
    engine.close()
    return list(found.values())


def test_preempted_and_cached_answers_are_those_of_one_shard(llama: Saved) -> None:
    path, _ = llama
    requests = [greedy(f"r{n}", [7 * n + at for at in range(11, 20 + n)]) for n in range(3)]
    one, two = (
        answers(open_shards(path, shards, kv_cache_memory_bytes=10 * BLOCK_BYTES), requests)
        for shards in (1, 2)
    )
    assert two == one
    assert two[0] == 3 * two[0][:20]


@pytest.mark.parametrize(("here", "there"), [(1, 2), (2, 1)])
def test_a_prompt_computed_in_one_layout_is_continued_in_the_other(
    llama: Saved, here: int, there: int
) -> None:
    path, model = llama
    source, target = open_shards(path, here), open_shards(path, there)
    [computed] = sequences(source, [17])
    [copied] = sequences(target, [17], seed=5)
    scores(source, [computed.row(16)])
    heads = torch.cat(pools(source), 3)[:, computed.blocks]
    shares = heads.chunk(there, 3)
    for pool, share in zip(pools(target), shares, strict=True):
        pool[:, copied.blocks] = share
    copied.tokens, copied.computed = computed.tokens, 16
    [found] = scores(target, [copied.row(1)])
    torch.testing.assert_close(found, reference(model, computed.tokens)[-1], **CLOSE)
    source.close()
    target.close()


class Watch:
    """A sink that looks, when told of a layer, in which layers of which pools a block is filled."""

    def __init__(self, runner: NativeRunner, block: int) -> None:
        self._pools = pools(runner)
        self._block = block
        self.told: list[int] = []
        self.filled: list[list[tuple[bool, ...]]] = []

    def begin(self, spans: Sequence[PushSpan]) -> None:
        raise AssertionError("the engine announces spans, not the runner")

    def on_layer(self, layer: int) -> None:
        self.told.append(layer)
        self.filled.append(
            [tuple(bool(part[self._block].any()) for part in pool) for pool in self._pools]
        )


@pytest.mark.parametrize("sampled", [True, False])
def test_the_sink_is_told_of_a_layer_once_all_shards_have_stored_it(
    llama: Saved, sampled: bool
) -> None:
    path, _ = llama
    runner = open_shards(path, 2)
    [sequence] = sequences(runner, [6])
    watch = Watch(runner, sequence.blocks[0])
    runner.launch([sequence.row(6, sampling() if sampled else None)], watch)
    assert len(runner.collect()) == sampled
    assert watch.told == [0, 1, 2]
    stages = [(True, False, False), (True, True, False), (True, True, True)]
    assert watch.filled == [[stage, stage] for stage in stages]
    runner.close()


def test_all_pools_together_have_the_bytes_that_were_given(llama: Saved) -> None:
    path, _ = llama
    one, two = open_shards(path, 1), open_shards(path, 2)
    assert two.describe() == one.describe()
    layout = two.describe().layout
    assert [region.nbytes for region in two.regions()] == [layout.pool_bytes // 2] * 2
    assert layout.pool_bytes <= POOL_BYTES < layout.pool_bytes + BLOCK_BYTES
    for runner in (one, two, two):
        runner.close()


def test_dummy_weights_are_the_same_in_any_number_of_shards(llama: Saved) -> None:
    path, _ = llama
    found = []
    for shards in (1, 2):
        runner = open_shards(path, shards, load_format="dummy")
        [sequence] = sequences(runner, [9])
        found += scores(runner, [sequence.row(9)])
        runner.close()
    torch.testing.assert_close(*found, **CLOSE)
    assert found[0].shape == (VOCAB,)


@pytest.mark.parametrize("count", [-2, 0, 3, 4])
def test_a_number_that_does_not_divide_the_heads_is_refused(llama: Saved, count: int) -> None:
    path, _ = llama
    with pytest.raises(ConfigError, match=f"is {count}: give a number that divides the 2 KV heads"):
        open_shards(path, count)


def test_a_number_that_does_not_divide_the_mlp_is_refused(tmp_path: Path, llama: Saved) -> None:
    path, _ = llama
    config = json.loads((path / "config.json").read_text())
    config["intermediate_size"] = 95
    (tmp_path / "config.json").write_text(json.dumps(config))
    open_shards(tmp_path, 1, load_format="dummy").close()
    with pytest.raises(ConfigError, match=r"is 2: .* divides intermediate_size \(95\) too"):
        open_shards(tmp_path, 2, load_format="dummy")


@pytest.mark.parametrize(("device", "count"), list(product(["cuda", "cuda:1"], [0, 2])))
def test_on_a_gpu_the_engine_has_one_shard(device: str, count: int) -> None:
    with pytest.raises(ConfigError, match=f'is {count}: this engine has one .* engine = "vllm"'):
        check_config(EngineConfig("any", device=device, tensor_parallel_size=count))
    check_config(EngineConfig("any", device=device))


def test_when_memory_is_short_for_one_pool_the_others_are_given_back(
    llama: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = llama
    files: list[int] = []
    grow = os.ftruncate

    def limited(fd: int, nbytes: int) -> None:
        files.append(fd)
        if len(files) == 2:
            raise OSError(12, "Cannot allocate memory")
        grow(fd, nbytes)

    monkeypatch.setattr(os, "ftruncate", limited)
    with pytest.raises(UnavailableError, match="lower kv_cache_memory_bytes"):
        open_shards(path, 2)
    assert len(files) == 2
    for fd in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
