"""Over every connector, between pools of equal and unequal blocks and shards: what is pushed to the
decode process and what is pulled back from it is what one engine alone would have.

The fake engine's KV decides its answers and is checked where it arrives: one wrong byte is seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from client import Stream, complete
from cluster import FAKE, Cluster, running, wait_until
from tiny_model import VOCAB_SIZE

from connectors.sides import DECODE, PREFILL, Side, Sides
from connectors.usable import deployments, need
from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW

HEADS = 12
CONFIG = FakeConfig(
    vocab_size=VOCAB_SIZE,
    token_low=FAKE_TOKEN_LOW,
    token_high=FAKE_TOKEN_HIGH,
    num_kv_heads=HEADS,
)
TOKEN_BYTES = CONFIG.layout.token_bytes
LOAD_S = 5.0
"""Within this time a gateway has heard what its workers did."""

SHAPES = {
    "equal": Sides(Side(4), Side(4)),
    "larger_at_decode": Sides(Side(3), Side(8)),
    "larger_at_prefill": Sides(Side(8), Side(6)),
    "split_at_decode": Sides(Side(4), Side(4, shards=2)),
    "split_at_prefill": Sides(Side(4, shards=2), Side(4)),
    "all_unlike": Sides(Side(3, shards=2), Side(8, shards=4)),
    "overlapping": Sides(Side(4, shards=3), Side(4, shards=4)),
}
"""Unequal block sizes do not divide each other, nor do the heads of shards that overlap."""

RUN = {
    "shm": ["split_at_decode", "all_unlike"],
    "tcp": ["equal", "larger_at_prefill", "split_at_prefill"],
}
"""By ``make test``."""


@dataclass
class Pair:
    cluster: Cluster
    connector: str
    sides: Sides

    def ask(self, prompt: Sequence[int], count: int) -> list[int]:
        answer = complete(self.cluster, prompt, count)
        assert answer == fake_tokens(prompt, count, config=CONFIG)
        return answer

    @property
    def pushed(self) -> float:
        """Bytes."""
        return self.cluster.total("splitserve_handoff_bytes_total")

    @property
    def pulled(self) -> tuple[float, float]:
        """Tokens and bytes."""
        total = self.cluster.total
        return total("splitserve_pulled_tokens_total"), total("splitserve_pulled_bytes_total")

    def check(self) -> None:
        """All went from the one process to the other by this connector, and none is left over."""
        total = self.cluster.total
        assert total("splitserve_link", connector=self.connector) == total("splitserve_link") == 1
        assert total("splitserve_fallback_total") == 0
        assert total("splitserve_prompt_tokens_computed_total", worker=DECODE) == 0
        self.cluster.assert_settles()


@pytest.fixture(scope="module", params=deployments(list(SHAPES), RUN))
def pair(model: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    connector, shape = request.param
    need(connector)
    sides = SHAPES[shape]
    flags = (*FAKE, "--max-num-batched-tokens", "32", "--connector", connector)
    flags = (*flags, "--fake-num-kv-heads", str(HEADS))
    roles = [("prefill", PREFILL), ("decode", DECODE)]
    with running(model, roles, flags, own_flags=sides.flags) as cluster:
        sides.check(cluster)
        yield Pair(cluster, connector, sides)
        check_end(cluster)


def check_end(cluster: Cluster) -> None:
    """A connector's library lets the worker end as it should."""
    for worker in cluster.workers.values():
        worker.popen.terminate()
    ends = {name: worker.popen.wait(15) for name, worker in cluster.workers.items()}
    assert set(ends.values()) == {0}, ends


def prompt(seed: int, length: int) -> list[int]:
    """None begins like that of another seed."""
    return [300 + (seed * 31 + i * 7) % 1000 for i in range(length)]


def test_what_was_pushed_is_answered_from(pair: Pair) -> None:
    for seed, length in enumerate((1, 2, 8, 31, 32, 33, 97)):
        before = pair.pushed
        pair.ask(prompt(seed, length), 12)
        rounding = pair.sides.prefill.block + pair.sides.decode.block
        assert length <= (pair.pushed - before) / TOKEN_BYTES <= length + rounding
    pair.check()


def test_each_turn_pulls_what_decode_alone_has(pair: Pair) -> None:
    prefill_block, decode_block = pair.sides.prefill.block, pair.sides.decode.block
    history = prompt(20, 45)
    history += pair.ask(history, 40)
    for turn in range(3):
        before = pair.pulled
        # Of full blocks: those of all but the answer's last token lie there, of the prompt's here.
        here = (len(history) - 40) // prefill_block
        there = (len(history) - 1) // decode_block * decode_block
        expected = (there // prefill_block - here) * prefill_block
        assert expected > 0
        history += prompt(30 + turn, 9)
        history += pair.ask(history, 40)

        def pulled(before: tuple[float, float] = before) -> tuple[float, ...]:
            return tuple(now - then for now, then in zip(pair.pulled, before, strict=True))

        wanted = (expected, expected * TOKEN_BYTES)
        wait_until(lambda: pulled() == wanted, LOAD_S, lambda: f"{pulled()}, not {wanted}")  # noqa: B023
    pair.check()


def test_many_at_once_are_answered_each_from_its_own(pair: Pair) -> None:
    prompts = [prompt(40 + n, 1 + n * n * 3) for n in range(8)]
    streams = [Stream(pair.cluster, ids, 30) for ids in prompts]
    for ids, stream in zip(prompts, streams, strict=True):
        stream.read_all()
        assert stream.tokens == fake_tokens(ids, 30, config=CONFIG)
    pair.check()
