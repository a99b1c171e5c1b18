"""Over every connector, between pools of equal and unequal blocks: what is pushed to the decode
process and what is pulled back from it is what one engine alone would have.

The fake engine's KV decides its answers and is checked where it arrives: one wrong byte is seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from client import Stream, complete
from cluster import FAKE, Cluster, running, wait_until
from tiny_model import VOCAB_SIZE

from connectors.usable import CONNECTORS, need, over
from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW

CONFIG = FakeConfig(vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH)
TOKEN_BYTES = CONFIG.layout.token_bytes
LOAD_S = 5.0
"""Within this time a gateway has heard what its workers did."""

BLOCKS = {"equal": (4, 4), "larger_at_decode": (3, 8), "larger_at_prefill": (8, 6)}
"""Block sizes of prefill and decode. The unequal ones do not divide each other."""

RUN = {"shm": ["larger_at_decode"], "tcp": ["equal", "larger_at_prefill"]}
"""Of connectors that other flow tests use too, not all: each is a deployment of its own."""


@dataclass
class Pair:
    cluster: Cluster
    connector: str
    prefill_block: int
    decode_block: int

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
        assert total("splitserve_prompt_tokens_computed_total", worker="d0") == 0
        self.cluster.assert_settles()


def deployments() -> Iterator[object]:
    for connector in CONNECTORS:
        for blocks in RUN.get(connector, BLOCKS):
            yield over(connector, blocks)


@pytest.fixture(scope="module", params=deployments())
def pair(model: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    connector, blocks = request.param
    need(connector)
    prefill, decode = BLOCKS[blocks]
    flags = (*FAKE, "--max-num-batched-tokens", "32", "--connector", connector)
    own_flags = {"p0": ("--block-size", str(prefill)), "d0": ("--block-size", str(decode))}
    roles = [("prefill", "p0"), ("decode", "d0")]
    with running(model, roles, flags, own_flags=own_flags) as cluster:
        yield Pair(cluster, connector, prefill, decode)
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
        rounding = pair.prefill_block + pair.decode_block
        assert length <= (pair.pushed - before) / TOKEN_BYTES <= length + rounding
    pair.check()


def test_each_turn_pulls_what_decode_alone_has(pair: Pair) -> None:
    history = prompt(20, 45)
    history += pair.ask(history, 40)
    for turn in range(3):
        before = pair.pulled
        # Of full blocks: those of all but the answer's last token lie there, of the prompt's here.
        here = (len(history) - 40) // pair.prefill_block
        there = (len(history) - 1) // pair.decode_block * pair.decode_block
        expected = (there // pair.prefill_block - here) * pair.prefill_block
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
