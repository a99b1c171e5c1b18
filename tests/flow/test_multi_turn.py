"""A conversation over one prefill and one decode process: each turn costs what is new in it.

What has to be computed is counted, and must be exactly the tokens of which neither process has a
full block. What the client edits, cuts off or strips can only be computed, never be wrong.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from client import complete
from cluster import FAKE, Cluster, running, wait_until
from tiny_model import VOCAB_SIZE

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW

CONFIG = FakeConfig(vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH)
BLOCK = 4
ANSWER = 10
LOAD_S = 5.0
"""Within this time a gateway has heard what its workers did."""


@dataclass
class Cache:
    """The full blocks that one worker has, each as all tokens up to its end."""

    blocks: set[tuple[int, ...]] = field(default_factory=set)

    def learn(self, tokens: Sequence[int]) -> None:
        self.blocks |= {tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)}

    def known(self, tokens: Sequence[int]) -> int:
        """How many tokens at the start of a prompt are known; never its last one."""
        found = 0
        while found + BLOCK < len(tokens) and tuple(tokens[: found + BLOCK]) in self.blocks:
            found += BLOCK
        return found


@dataclass
class Talk:
    """``computed`` and ``pulled`` are what the turns so far must have cost."""

    cluster: Cluster
    prefill: Cache = field(default_factory=Cache)
    decode: Cache = field(default_factory=Cache)
    computed: int = 0
    pulled: int = 0

    def ask(self, prompt: Sequence[int]) -> list[int]:
        """One turn. Returns the answer, which is that of an engine that does all alone."""
        answer = complete(self.cluster, prompt, ANSWER)
        assert answer == fake_tokens(prompt, ANSWER, config=CONFIG)
        own = self.prefill.known(prompt)
        there = max(own, self.decode.known(prompt))
        self.computed += len(prompt) - there
        self.pulled += there - own
        self.prefill.learn(prompt)
        self.decode.learn([*prompt, *answer[:-1]])  # the last token is not computed
        wait_until(self.counted, LOAD_S, lambda: f"{self.counts()}, not {self.expected}")
        return answer

    @property
    def expected(self) -> tuple[float, float]:
        return self.computed, self.pulled

    def counts(self) -> tuple[float, float]:
        return (
            self.cluster.total("splitserve_prompt_tokens_computed_total"),
            self.cluster.total("splitserve_pulled_tokens_total"),
        )

    def counted(self) -> bool:
        return self.counts() == self.expected


def user(turn: int, length: int = 14) -> list[int]:
    return [300 + (turn * 97 + i * 13) % 90 for i in range(length)]


@pytest.fixture
def talk(model: str) -> Iterator[Talk]:
    flags = (*FAKE, "--max-num-batched-tokens", "32")
    with running(model, [("prefill", "p0"), ("decode", "d0")], flags) as cluster:
        yield Talk(cluster)


def test_each_of_ten_turns_computes_only_what_is_new(talk: Talk) -> None:
    history: list[int] = []
    for turn in range(10):
        before, new = talk.computed, user(turn)
        history += new
        history += talk.ask(history)
        # The last token of the answer before was not computed, and a block may not have been full.
        assert len(new) <= talk.computed - before <= len(new) + 1 + (BLOCK - 1)
    assert talk.cluster.total("splitserve_prompt_tokens_computed_total", worker="d0") == 0
    assert talk.cluster.total("splitserve_pulled_tokens_total", worker="p0") >= 9 * (ANSWER - BLOCK)
    assert talk.cluster.total("splitserve_pulled_bytes_total") == (
        talk.pulled * FakeConfig(block_size=BLOCK).layout.token_bytes
    )
    assert talk.cluster.total("splitserve_fallback_total") == 0
    talk.cluster.assert_settles()
    assert talk.counted()


def test_an_edited_message_is_computed_from_the_edit_on(talk: Talk) -> None:
    turns: list[list[int]] = []
    for turn in range(5):
        turns.append(user(turn))
        turns.append(talk.ask(flat(turns)))
    for edited in (8, 5, 2, 0):  # two questions, an answer, and the beginning
        before = talk.computed
        turns[edited][6] = 390 + edited
        start = sum(len(turn) for turn in turns[:edited]) + 6
        prompt = [*flat(turns), *user(edited + 20)]
        talk.ask(prompt)
        kept = len(prompt) - (talk.computed - before)
        assert start - BLOCK < kept <= start
    talk.cluster.assert_settles()
    assert talk.counted()


def test_a_history_that_lost_its_oldest_turns_is_computed_anew_once(talk: Talk) -> None:
    turns: list[list[int]] = []
    for turn in range(8):
        turns.append(user(turn))
        before = talk.computed
        turns.append(talk.ask(flat(turns[-7:])))
        dropped = turn >= 4
        assert (talk.computed - before >= 60) == dropped
    before = talk.computed
    talk.ask([*flat(turns[-8:]), *user(30)])  # nothing is dropped but what was before
    assert talk.computed - before < 60
    talk.cluster.assert_settles()
    assert talk.counted()


def test_answers_without_their_thinking_are_computed_and_the_rest_is_kept(talk: Talk) -> None:
    """The client sends back the end of each answer only."""
    history: list[int] = []
    for turn in range(10):
        before, new = talk.computed, user(turn)
        history += new
        answer = talk.ask(history)
        stripped = answer[ANSWER // 2 :]
        kept_of_last_answer = 0 if turn == 0 else len(stripped)
        computed = talk.computed - before
        assert computed <= len(new) + kept_of_last_answer + (BLOCK - 1)
        history += stripped
    talk.cluster.assert_settles()
    assert talk.counted()


def flat(turns: Sequence[Sequence[int]]) -> list[int]:
    return [token for turn in turns for token in turn]
