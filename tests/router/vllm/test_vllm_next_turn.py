"""Conversations over a pair that goes both ways: prefill reads what decode has kept of the last
turn, where the new prompt literally goes on from it, and nowhere else (vllm#43094)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pytest
from fake_vllm import Behavior, Call, FakeVllm, token_after
from router_bench import Answer, until
from vllm_bench import VllmBench, expected, prompt

from splitserve.ids import WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.router.workers.vllm import decode as decode_leg
from splitserve.router.workers.vllm.dialects.registry import dialect_for
from splitserve.router.workers.vllm.settings import VllmWorker

ONE_WAY: Final = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
BOTH_WAYS: Final = ONE_WAY | {"kv_connector_extra_config": {"bidirectional_kv_xfer": True}}
PLAIN: Final = {"do_remote_decode": True, "do_remote_prefill": False}
PLACE: Final = {"remote_host": "127.0.0.1", "remote_port": 5600, "tp_size": 1}
ASKED: Final = 4


@dataclass
class Pair:
    """Two instances that keep what they finish. What vLLM would get wrong without a word is noted
    in ``wrong``: a turn that is not the prompt's beginning, or is read twice."""

    fails: bool = False
    first: int | None = None
    hold: asyncio.Event | None = None
    kept: dict[str, list[int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.prefill = FakeVllm(behave=self._prefills, shake=self._prefills)
        self.decode = FakeVllm(behave=self._decodes, shake=self._shakes)

    def continued(self, nth: int) -> bool:
        """Whether that prefill leg was told to read a turn; else it must have been a plain one."""
        params = self.prefill.calls[nth].params
        assert params is not None
        assert "remote_block_ids" in params or params == PLAIN
        return params != PLAIN

    def _prefills(self, call: Call) -> Behavior:
        if call.params is None:
            return Behavior()
        if "remote_block_ids" in call.params:
            old = self.kept.pop(call.params["remote_request_id"], None)
            if old is None or call.prompt[: len(old)] != old or len(call.prompt) <= len(old):
                self.wrong.append(f"{call.prompt} does not go on from {old}")
            if self.fails:
                return Behavior(status=500)
        return Behavior(params=self._returned(call, prefilled=True))

    def _decodes(self, call: Call) -> Behavior:
        if call.params is None:
            return Behavior()
        if not call.streams:
            count = call.sampling["max_tokens"]
            answer = [token_after(len(call.prompt) + i) for i in range(count)]
            self.kept[call.headers["X-Request-Id"]] = call.prompt + answer
        returned = self._returned(call, prefilled=False)
        return Behavior(params=returned, first=self.first, hold=self.hold)

    def _shakes(self, call: Call) -> Behavior:
        return Behavior(params=self._returned(call, prefilled=False))

    def _returned(self, call: Call, *, prefilled: bool) -> dict[str, Any]:
        tokens = len(call.prompt) + (0 if prefilled else call.sampling["max_tokens"] - 1)
        return {
            "do_remote_prefill": prefilled,
            "do_remote_decode": not prefilled,
            "remote_block_ids": [list(range(-(-tokens // 16)))],
            "remote_engine_id": "p" if prefilled else "d",
            "remote_request_id": call.headers["X-Request-Id"],
            "remote_num_tokens": tokens,
            "transfer_mode": "pull",
            **PLACE,
        }


@asynccontextmanager
async def talking(
    pair: Pair,
    prefill: dict[str, Any] = BOTH_WAYS,
    decode: dict[str, Any] = BOTH_WAYS,
    **settings: Any,
) -> AsyncIterator[VllmBench]:
    """A router over the pair, linked; in the end nothing may have gone wrong without a word."""
    await pair.prefill.start()
    await pair.decode.start()
    parts = (("prefill", pair.prefill, prefill), ("decode", pair.decode, decode))
    workers = {
        f"vllm+{fake.url}": VllmWorker(WorkerId(f"{role}-0"), role, fake.url, config, **settings)
        for role, fake, config in parts
    }
    made = VllmBench(workers, dialect_for(BOTH_WAYS))
    await made.router.start()
    try:
        await until(lambda: made.router.ready() is None and not made.router.warnings())
        yield made
    finally:
        await made.router.close()
        await pair.prefill.stop()
        await pair.decode.stop()
    assert pair.wrong == []


def asking(name: str, **changes: Any) -> GenerateRequest:
    return msgspec.structs.replace(prompt(name, max_tokens=ASKED), **{"whole": True, **changes})


def going_on(request: GenerateRequest) -> tuple[int, ...]:
    """A next prompt: all that was said, and more."""
    return (*request.token_ids, *expected(request), 5, 6, 7)


async def answered(made: VllmBench, request: GenerateRequest) -> None:
    answer = await Answer(made.router, request).ended()
    assert answer.tokens == expected(request)
    assert answer.chunks[-1].finish_reason == "length"


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize("generate", [True, False], ids=["generate", "completions"])
async def test_the_next_turn_reads_what_decode_kept_of_the_last(
    whole: bool, generate: bool
) -> None:
    pair, first = Pair(), asking("a")
    pair.prefill.generate = pair.decode.generate = generate
    async with talking(pair) as made:
        await answered(made, first)
        await answered(made, asking("b", token_ids=going_on(first), whole=whole))
        assert [pair.continued(0), pair.continued(1)] == [False, True]
        assert [call.streams for call in pair.decode.calls] == [False, not whole]
        assert made.words.count("turn_kept") == 1 + whole
        assert made.words.count("turn_continued") == 1
        assert made.notes.fallbacks == []


async def test_each_turn_goes_on_from_the_one_before() -> None:
    pair, request = Pair(), asking("t0")
    async with talking(pair) as made:
        for turn in range(1, 4):
            await answered(made, request)
            request = asking(f"t{turn}", token_ids=going_on(request))
        assert [pair.continued(nth) for nth in range(3)] == [False, True, True]
        assert len(made.exchange.turns) == 1


OLD: Final = going_on(asking("a"))[:-3]

OTHERS: Final[dict[str, dict[str, Any]]] = {
    "edited": {"token_ids": (*OLD[:7], 99, *OLD[8:], 5)},
    "edited-answer": {"token_ids": (*OLD[:-1], 99, 5)},
    "reasoning-stripped": {"token_ids": (*OLD[:20], *OLD[22:], 5, 6, 7)},
    "shortened": {"token_ids": OLD[:-2]},
    "nothing-new": {"token_ids": OLD},
    "shifted": {"token_ids": (1, *OLD, 5)},
    "other-client": {"token_ids": (*OLD, 5), "owner": "mallory"},
    "other-salt": {"token_ids": (*OLD, 5), "cache_salt": "pepper"},
}


@pytest.mark.parametrize("other", OTHERS)
async def test_whatever_is_not_its_continuation_is_computed(other: str) -> None:
    pair = Pair()
    async with talking(pair) as made:
        await answered(made, asking("a"))
        await answered(made, asking("b", **OTHERS[other]))
        assert not pair.continued(1)
        assert "turn_continued" not in made.words


async def test_a_turn_serves_one_prompt() -> None:
    pair, first = Pair(), asking("a")
    async with talking(pair) as made:
        await answered(made, first)
        for name in ("b", "c"):
            await answered(made, asking(name, token_ids=going_on(first), whole=False))
        assert [pair.continued(1), pair.continued(2)] == [True, False]


async def test_a_turn_that_prefill_could_not_read_is_used_up() -> None:
    pair, first = Pair(fails=True), asking("a")
    async with talking(pair) as made:
        await answered(made, first)
        for name in ("b", "c"):
            await answered(made, asking(name, token_ids=going_on(first), whole=False))
        assert [pair.continued(1), pair.continued(2)] == [True, False]
        assert made.notes.fallbacks == [("recompute", "prefill_engine")]


async def test_a_stream_keeps_nothing() -> None:
    pair, first = Pair(), asking("a", whole=False)
    async with talking(pair) as made:
        await answered(made, first)
        await answered(made, asking("b", token_ids=going_on(first)))
        assert not pair.continued(1)
        assert made.words.count("turn_kept") == 1


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [(ONE_WAY, BOTH_WAYS), (BOTH_WAYS, ONE_WAY), (ONE_WAY, ONE_WAY)],
    ids=["decode-alone", "prefill-alone", "neither"],
)
async def test_both_must_be_started_for_it(prefill: dict[str, Any], decode: dict[str, Any]) -> None:
    pair, first = Pair(), asking("a")
    async with talking(pair, prefill, decode) as made:
        await answered(made, first)
        await answered(made, asking("b", token_ids=going_on(first)))
        assert not pair.continued(1)
        assert [call.streams for call in pair.decode.calls] == [True, True]
        assert "turn_kept" not in made.words


async def test_a_first_token_that_waits_for_decode_does_not_wait_for_the_whole_answer() -> None:
    pair = Pair()
    sampling = msgspec.structs.replace(prompt("a").sampling, max_tokens=ASKED, presence_penalty=1.0)
    async with talking(pair) as made:
        await answered(made, asking("a", sampling=sampling))
        assert pair.decode.calls[0].streams
        assert made.words == ["first_token_waits"]


async def test_a_lost_decode_instance_keeps_nothing() -> None:
    pair, first = Pair(), asking("a")
    async with talking(pair) as made:
        await answered(made, first)
        assert len(made.exchange.turns) == 1
        await pair.decode.stop()
        await until(lambda: len(made.exchange.turns) == 0)
        pair.decode.started = 2.0
        await pair.decode.start()
        await until(lambda: made.exchange.writers(WorkerId("decode-0")) != ())
        await answered(made, asking("b", token_ids=going_on(first)))
        assert not pair.continued(1)


async def test_an_answer_that_begins_otherwise_is_not_kept() -> None:
    pair = Pair(first=77)
    async with talking(pair) as made:
        await answered(made, asking("a"))
        assert made.words == ["first_token_at_once", "first_token_differs"]
        assert len(made.exchange.turns) == 0


async def test_the_part_of_prefill_does_not_last_as_long_as_the_answer() -> None:
    pair = Pair(hold=asyncio.Event())
    async with talking(pair) as made:
        answer = Answer(made.router, asking("a"))
        await answer.has(1)
        await until(lambda: len(made.notes.handoffs) == 1)
        assert answer.tokens == [token_after(20)]
        assert pair.hold is not None
        pair.hold.set()
        await answer.ended()
        assert answer.tokens == expected(answer.request)
        assert len(made.notes.handoffs) == 1


async def test_an_answer_in_one_piece_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decode_leg, "TOKEN_S", 0.01)
    pair, sampling = Pair(hold=asyncio.Event()), prompt("a", max_tokens=2).sampling
    async with talking(pair, kv_wait_s=0.05) as made:
        await answered(made, asking("a", sampling=sampling))
        await pair.decode.see(lambda: pair.decode.calls[0].gone)
        assert "kv_late" in made.words
        assert made.notes.fallbacks == [("replay", "decode_transfer_failed")]


async def test_a_decode_instance_that_dies_in_the_middle_is_replayed() -> None:
    pair = Pair(hold=asyncio.Event())
    async with talking(pair) as made:
        answer = Answer(made.router, asking("a"))
        await pair.decode.call()
        await pair.decode.stop()
        await answer.ended()
        assert answer.tokens == expected(answer.request)
