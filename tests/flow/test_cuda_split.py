"""Prefill by one GPU worker and decode by another: the answers of a worker that does both."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from client import Stream, complete
from cluster import Cluster, Starting, started
from tiny_model import VOCAB_SIZE, make_model_folder

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

FLAGS = (
    *("--load-format", "dummy", "--kv-cache-memory-bytes", "256MiB"),
    *("--max-num-seqs", "16", "--max-num-batched-tokens", "256"),
)
NEW = 24


@dataclass
class GpuCluster(Cluster):
    devices: dict[str, str] = field(default_factory=dict)

    def launch_worker(self, role: str, name: str, *flags: str) -> Starting:
        return super().launch_worker(role, name, "--device", self.devices[name], *flags)


def started_on(model: Path, stack: ExitStack, workers: dict[str, tuple[str, str]]) -> GpuCluster:
    """``workers``: name to role and device."""
    run_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ss-")))
    devices = {name: device for name, (_, device) in workers.items()}
    cluster = GpuCluster(str(model), run_dir, FLAGS, devices=devices)
    stack.enter_context(started(cluster, [(role, name) for name, (role, _) in workers.items()]))
    return cluster


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a shape that the kernels have, without weights."""
    folder = make_model_folder(tmp_path_factory.mktemp("gpu-model") / "small")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture(scope="module")
def split(model: Path, stack: ExitStack) -> GpuCluster:
    return started_on(model, stack, two_gpus())


@pytest.fixture(scope="module")
def whole(model: Path, stack: ExitStack) -> GpuCluster:
    return started_on(model, stack, {"c0": ("colocated", "cuda:0")})


def two_gpus() -> dict[str, tuple[str, str]]:
    """One for each worker, where there are two."""
    other = "cuda:1" if torch.cuda.device_count() > 1 else "cuda:0"
    return {"p0": ("prefill", "cuda:0"), "d0": ("decode", other)}


def prompt(length: int) -> list[int]:
    return [300 + (length * 31 + at * 17) % (VOCAB_SIZE - 300) for at in range(length)]


@pytest.mark.parametrize("length", [1, 16, 17, 255, 256, 257, 1000])
def test_greedy_tokens_are_the_same(split: GpuCluster, whole: GpuCluster, length: int) -> None:
    moved = split.total("splitserve_handoff_bytes_total")
    first = complete(split, prompt(length), NEW, ignore_eos=True)
    assert first == complete(whole, prompt(length), NEW, ignore_eos=True)
    assert split.total("splitserve_handoff_bytes_total") > moved
    assert split.total("splitserve_fallback_total") == 0
    # Again, from prefix caches on both sides.
    assert complete(split, prompt(length), NEW, ignore_eos=True) == complete(
        whole, prompt(length), NEW, ignore_eos=True
    )
    split.assert_settles()
    whole.assert_settles()


def test_drawn_tokens_are_the_same(split: GpuCluster, whole: GpuCluster) -> None:
    settings = {"temperature": 0.8, "top_p": 0.9, "seed": 5, "ignore_eos": True}
    answers = [complete(cluster, prompt(300), NEW, **settings) for cluster in (split, whole)]
    assert answers[0] == answers[1]


def test_a_stream_that_is_cut_gives_its_blocks_back(split: GpuCluster) -> None:
    stream = Stream(split, prompt(900), 400, ignore_eos=True)
    stream.read(3)
    stream.close()
    split.assert_settles()


def test_a_prefill_worker_that_is_killed_costs_no_answer(model: Path) -> None:
    with ExitStack() as own:
        cluster = started_on(model, own, two_gpus())
        expected = complete(cluster, prompt(500), NEW, ignore_eos=True)
        cluster.workers["p0"].kill()
        assert complete(cluster, prompt(500), NEW, ignore_eos=True) == expected
        cluster.assert_settles()


def test_many_at_once_all_answer(split: GpuCluster) -> None:
    streams = [Stream(split, prompt(100 + 40 * n), 30, ignore_eos=True) for n in range(24)]
    for stream in streams:
        stream.read_all(60)
    assert [len(stream.tokens) for stream in streams] == [30] * len(streams)
    split.assert_settles()
