"""NativeRunner keeps the promises of Runner: what it says of itself, its memory, its calls."""

import mmap
import os
from pathlib import Path

import pytest
import torch
from native_rig import BLOCK, Saved, open_runner, sampling, scores, sequences

from splitserve.engine.api import PushSpan
from splitserve.engine.native import NativeRunner
from splitserve.errors import BugError, ConfigError, UnavailableError


def shared(runner: NativeRunner) -> mmap.mmap:
    """The pool as another process sees it: through its file descriptor."""
    [region] = runner.regions()
    return mmap.mmap(region.shared_fd, region.nbytes)


def test_it_describes_model_and_pool(llama: Saved) -> None:
    path, _ = llama
    runner = open_runner(path, kv_cache_memory_bytes=100_000)
    info = runner.describe()
    layout = info.layout
    assert (info.name, info.dtype, info.vocab_size) == (path.name, "float32", 128)
    assert (info.max_model_len, info.eos_token_ids) == (512, (2,))
    assert (layout.num_layers, layout.num_kv_heads, layout.head_dim) == (3, 2, 16)
    assert layout.block_size == BLOCK
    assert layout.itemsize == 4
    assert layout.num_blocks == 100_000 // (3 * 2 * 2 * BLOCK * 16 * 4)
    [region] = runner.regions()
    assert (region.nbytes, region.device) == (layout.pool_bytes, "cpu")
    assert os.fstat(region.shared_fd).st_size == layout.pool_bytes
    runner.close()
    runner.close()


def test_dummy_weights_have_a_content_hash_of_their_own(llama: Saved) -> None:
    path, _ = llama
    settings = [{}, {"load_format": "dummy"}, {"load_format": "dummy", "seed": 1}]
    hashes = set()
    for chosen in settings:
        runner = open_runner(path, **chosen)
        hashes.add(runner.describe().content_hash)
        runner.close()
    assert len(hashes) == 3


@pytest.mark.parametrize("chunk", [13, 5])
def test_kv_lies_where_the_layout_says(llama: Saved, chunk: int) -> None:
    path, model = llama
    runner = open_runner(path)
    [sequence] = sequences(runner, [13])
    while sequence.computed < 13:
        scores(runner, [sequence.row(min(chunk, 13 - sequence.computed))])
    with torch.inference_mode():
        cache = model(torch.tensor([sequence.tokens]), use_cache=True).past_key_values
    layout = runner.describe().layout
    shape = (2, layout.num_kv_heads, BLOCK, layout.head_dim)
    with shared(runner) as memory:
        for layer in range(layout.num_layers):
            expected = torch.stack((cache.layers[layer].keys[0], cache.layers[layer].values[0]))
            for number in range(4):
                offset = layout.offset(layer, sequence.blocks[number])
                stored = bytearray(memory[offset : offset + layout.block_bytes])
                block = torch.frombuffer(stored, dtype=torch.float32).view(shape)
                part = expected[:, :, number * BLOCK : (number + 1) * BLOCK]
                torch.testing.assert_close(block[:, :, : part.shape[2]], part, rtol=0, atol=1e-5)
    runner.close()


@pytest.mark.parametrize("computed", [12, 17])
def test_kv_that_another_process_wrote_is_what_is_read(llama: Saved, computed: int) -> None:
    path, _ = llama
    here, there = open_runner(path), open_runner(path)
    [sequence] = sequences(here, [30])
    [copied] = sequences(there, [30], seed=5)
    copied.tokens = sequence.tokens
    scores(here, [sequence.row(computed)])
    layout = here.describe().layout
    with shared(here) as source, shared(there) as target:
        for layer in range(layout.num_layers):
            for mine, other in zip(sequence.blocks, copied.blocks, strict=True):
                at, to = layout.offset(layer, mine), layout.offset(layer, other)
                target[to : to + layout.block_bytes] = source[at : at + layout.block_bytes]
    copied.computed = computed
    for count in (1, 5):
        [expected] = scores(here, [sequence.row(count)])
        [found] = scores(there, [copied.row(count)])
        assert torch.equal(found, expected)
    here.close()
    there.close()


class Watch:
    """A sink that looks into the pool whenever it is told of a layer."""

    def __init__(self, runner: NativeRunner, block: int) -> None:
        self._memory = shared(runner)
        self._layout = runner.describe().layout
        self._block = block
        self.told: list[int] = []
        self.filled: list[list[bool]] = []

    def begin(self, spans: list[PushSpan]) -> None:
        raise AssertionError("the engine announces spans, not the runner")

    def on_layer(self, layer: int) -> None:
        self.told.append(layer)
        starts = [self._layout.offset(at, self._block) for at in range(self._layout.num_layers)]
        size = self._layout.block_bytes
        self.filled.append([any(self._memory[start : start + size]) for start in starts])


@pytest.mark.parametrize("sampled", [True, False])
def test_the_sink_is_told_of_each_layer_once_it_is_stored(llama: Saved, sampled: bool) -> None:
    path, _ = llama
    runner = open_runner(path)
    [sequence] = sequences(runner, [6])
    watch = Watch(runner, sequence.blocks[0])
    runner.launch([sequence.row(6, sampling() if sampled else None)], watch)
    assert len(runner.collect()) == sampled
    assert watch.told == [0, 1, 2]
    assert watch.filled == [[True, False, False], [True, True, False], [True, True, True]]
    runner.close()


def test_launch_and_collect_must_alternate(llama: Saved) -> None:
    path, _ = llama
    runner = open_runner(path)
    [sequence] = sequences(runner, [6])
    with pytest.raises(BugError, match="without launch"):
        runner.collect()
    runner.launch([sequence.row(3)], None)
    with pytest.raises(BugError, match="before collect"):
        runner.launch([sequence.row(3)], None)
    runner.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "cuda"}, "runs on the CPU"),
        ({"dtype": "float16"}, "dtype 'float16' is not supported"),
        ({"threads": 0}, "threads is 0"),
        ({"block_size": 0}, "block_size is 0"),
        ({"load_format": "sharded"}, "load_format 'sharded' is unknown"),
        ({"kv_cache_memory_bytes": 3071}, "one block of this model takes 3072"),
        ({"max_model_len": 513}, "max_model_len is 513: the model allows 1 to 512"),
        ({"max_model_len": 0}, "max_model_len is 0"),
    ],
)
def test_a_setting_that_cannot_be_is_named(
    llama: Saved, settings: dict[str, object], message: str
) -> None:
    path, _ = llama
    with pytest.raises(ConfigError, match=message):
        open_runner(path, **settings)


def test_threads_are_as_many_as_asked(llama: Saved) -> None:
    path, _ = llama
    open_runner(path, threads=2).close()
    assert torch.get_num_threads() == 2
    open_runner(path, threads=1).close()
    assert torch.get_num_threads() == 1


def test_a_shorter_context_can_be_asked_for(llama: Saved) -> None:
    path, _ = llama
    runner = open_runner(path, max_model_len=100)
    assert runner.describe().max_model_len == 100
    runner.close()


def test_without_memfd_the_pool_is_a_file_that_has_no_name(
    llama: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = llama
    monkeypatch.delattr(os, "memfd_create")
    runner = open_runner(path)
    [region] = runner.regions()
    assert os.fstat(region.shared_fd).st_nlink == 0
    [sequence] = sequences(runner, [6])
    assert len(scores(runner, [sequence.row(6)])) == 1
    with shared(runner) as memory:
        assert any(memory[:])
    runner.close()


def test_more_memory_than_there_is_is_refused(llama: Saved) -> None:
    path, _ = llama
    with pytest.raises(UnavailableError, match=r"no \d+ bytes of shared memory"):
        open_runner(path, kv_cache_memory_bytes=1 << 62)


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json is missing"):
        open_runner(tmp_path)
