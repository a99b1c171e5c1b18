"""Prefill by one GPU worker and decode by another: the answers of a worker that does both."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from client import Stream, complete
from cluster import Cluster, Starting, started
from gpus import FLAGS, make_wide_model, two_gpus
from tiny_model import VOCAB_SIZE

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

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
    return make_wide_model(tmp_path_factory.mktemp("gpu-model") / "small")


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture(scope="module")
def split(model: Path, stack: ExitStack) -> GpuCluster:
    return started_on(model, stack, pair())


@pytest.fixture(scope="module")
def whole(model: Path, stack: ExitStack) -> GpuCluster:
    return started_on(model, stack, {"c0": ("colocated", "cuda:0")})


def pair() -> dict[str, tuple[str, str]]:
    prefill, decode = two_gpus()
    return {"p0": ("prefill", prefill), "d0": ("decode", decode)}


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
        cluster = started_on(model, own, pair())
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
