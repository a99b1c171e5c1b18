"""What worker processes computed is found by those that come after them on the same host.

The tier is on disk: that level is the same for all workers of a host in any case, and stays in the
test's own folder.
"""

from collections.abc import Sequence
from pathlib import Path

from client import complete
from cluster import FAKE, Cluster, running, wait_until
from tiny_model import VOCAB_SIZE

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW

CONFIG = FakeConfig(vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH)
BLOCK = 4
PROMPT = [300 + 7 * i for i in range(41)]
WHOLE = (len(PROMPT) - 1) // BLOCK
"""Blocks that can be brought: never the one with the prompt's last token."""

ANSWER = 10
STORED_S = 10.0
LOAD_S = 5.0
"""Within these times a worker at rest has stored what it computed, and a gateway heard of it."""


def flags(folder: Path) -> Sequence[str]:
    tier = ("--kv-tier-disk-path", str(folder), "--kv-tier-disk-bytes", "64MiB")
    return (*FAKE, "--max-num-batched-tokens", "32", *tier)


def stored(folder: Path) -> int:
    """Whole blocks; those that are being written lie one folder higher."""
    return sum(1 for _ in folder.glob("*/*"))


def computed(cluster: Cluster, name: str) -> float:
    return cluster.total("splitserve_prompt_tokens_computed_total", worker=name)


def hits(cluster: Cluster, name: str) -> float:
    return cluster.total("splitserve_kv_tier_hits_total", worker=name, level="disk")


def ask_and_store(cluster: Cluster, folder: Path) -> None:
    """Blocks of the prompt are stored before those of the answer."""
    assert complete(cluster, PROMPT, ANSWER) == fake_tokens(PROMPT, ANSWER, config=CONFIG)
    wait_until(lambda: stored(folder) >= WHOLE, STORED_S, lambda: f"{stored(folder)} are stored")
    cluster.assert_settles()


def ask_and_find(
    cluster: Cluster, name: str, prompt: Sequence[int] = PROMPT, found: int = WHOLE
) -> None:
    """Worker ``name``, which has computed nothing yet, finds so many blocks and computes the
    rest."""
    assert complete(cluster, prompt, ANSWER) == fake_tokens(prompt, ANSWER, config=CONFIG)
    expected = (len(prompt) - found * BLOCK, found)

    def counts() -> tuple[float, float]:
        return computed(cluster, name), hits(cluster, name)

    wait_until(lambda: counts() == expected, LOAD_S, lambda: f"{counts()}, not {expected}")
    cluster.assert_settles()


def test_a_worker_that_starts_again_finds_what_it_had_computed(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with running(model, [("colocated", "c0")], flags(folder)) as cluster:
        ask_and_store(cluster, folder)
        worker = cluster.workers["c0"]
        worker.popen.terminate()
        assert worker.popen.wait(timeout=15) == 0
        cluster.start_worker("colocated", "c0")
        cluster.wait_ready()
        ask_and_find(cluster, "c0")
    assert not list(folder.glob(".part-*"))


def test_another_worker_of_the_host_finds_it(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with running(model, [("colocated", "c0")], flags(folder)) as cluster:
        ask_and_store(cluster, folder)
    roles = [("prefill", "p0"), ("decode", "d0")]
    with running(model, roles, flags(folder)) as cluster:
        ask_and_find(cluster, "p0")
        assert computed(cluster, "d0") == 0
        assert cluster.total("splitserve_fallback_total") == 0
        assert cluster.total("splitserve_handoff_bytes_total") > 0


def test_workers_with_other_shards_find_it(model: str, tmp_path: Path) -> None:
    """Of six heads each: three pools first, then two at prefill and one at decode."""
    folder = tmp_path / "kv"
    heads = (*flags(folder), "--fake-num-kv-heads", "6")
    shards = "--tensor-parallel-size"
    with running(model, [("colocated", "c0")], (*heads, shards, "3")) as cluster:
        ask_and_store(cluster, folder)
    roles = [("prefill", "p0"), ("decode", "d0")]
    with running(model, roles, heads, own_flags={"p0": (shards, "2")}) as cluster:
        ask_and_find(cluster, "p0")
        assert computed(cluster, "d0") == 0
        assert cluster.total("splitserve_fallback_total") == 0


def test_a_worker_that_was_killed_leaves_what_it_had_stored(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with running(model, [("colocated", "c0")], flags(folder)) as cluster:
        ask_and_store(cluster, folder)
        cluster.workers["c0"].kill()
        cluster.start_worker("colocated", "c0")
        cluster.wait_ready()
        ask_and_find(cluster, "c0")


def test_an_edited_prompt_finds_what_comes_before_the_edit(model: str, tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    with running(model, [("colocated", "c0")], flags(folder)) as cluster:
        ask_and_store(cluster, folder)
    edited = [*PROMPT[:18], 299, *PROMPT[19:]]
    with running(model, [("colocated", "c1")], flags(folder)) as cluster:
        ask_and_find(cluster, "c1", edited, found=4)
