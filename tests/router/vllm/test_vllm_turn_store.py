"""The turn that a prompt goes on from is found by its tokens, and given once."""

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.ids import RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams
from splitserve.router.workers.vllm.dialects.base import Instance, Params
from splitserve.router.workers.vllm.dialects.nixl_turns import DECODER_TTL_S
from splitserve.router.workers.vllm.kept_turns import KeptTurns

PREFILL: Final = Instance("http://p", {"bidirectional": True})
DECODE: Final = Instance("http://d", {"bidirectional": True})
D: Final = WorkerId("d")


def asking(*tokens: int, owner: str = "", salt: str = "") -> GenerateRequest:
    sampling = SamplingParams(seed=1, max_tokens=2)
    return GenerateRequest(RequestId("r"), tokens, sampling, cache_salt=salt, owner=owner)


def kept_of(name: str, tokens: int) -> dict[str, Any]:
    return {
        "do_remote_prefill": False,
        "do_remote_decode": True,
        "remote_block_ids": [[1]],
        "remote_engine_id": "e",
        "remote_request_id": name,
        "remote_host": "h",
        "remote_port": 1,
        "tp_size": 1,
        "remote_num_tokens": tokens - 1,
    }


def keep(turns: KeptTurns, request: GenerateRequest, *answer: int, now: float = 0.0) -> str:
    """The name by which ``take`` gives it back."""
    tokens = (*request.token_ids, *answer)
    name = "-".join(map(str, tokens))
    assert turns.keep(request, answer, kept_of(name, len(tokens)), D, DECODE, now)
    return name


def take(
    turns: KeptTurns, request: GenerateRequest, now: float = 0.0, *, reached: bool = True
) -> str | None:
    params: Params | None = turns.take(request, PREFILL, lambda worker: reached, now)
    return None if params is None else params["remote_request_id"]


def test_the_longest_beginning_is_taken_and_then_the_next() -> None:
    turns = KeptTurns()
    short, long = keep(turns, asking(1), 2), keep(turns, asking(1, 2), 3, 4)
    keep(turns, asking(1, 2), 3, 9)
    assert take(turns, asking(1, 2, 3, 4, 5)) == long
    assert take(turns, asking(1, 2, 3, 4, 5)) == short
    assert take(turns, asking(1, 2, 3, 4, 5)) is None
    assert len(turns) == 1


_TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=5)


@settings(max_examples=200)
@given(st.lists(_TOKENS, max_size=8), _TOKENS)
def test_only_a_literal_beginning_is_ever_taken(histories: list[list[int]], new: list[int]) -> None:
    turns = KeptTurns()
    for history in histories:
        keep(turns, asking(*history[:1]), *history[1:], 0)
    old = {(*history, 0) for history in histories}
    fitting = sorted(h for h in old if len(h) < len(new) and h == tuple(new[: len(h)]))
    expected = "-".join(map(str, fitting[-1])) if fitting else None
    assert take(turns, asking(*new)) == expected
    assert len(turns) == len(old) - (expected is not None)


def test_nobody_goes_on_from_what_another_client_or_salt_has_said() -> None:
    turns = KeptTurns()
    mine = keep(turns, asking(1, owner="a", salt="s"), 2)
    for owner, salt in (("b", "s"), ("a", "t"), ("", ""), ("s", "a")):
        assert take(turns, asking(1, 2, 3, owner=owner, salt=salt)) is None
    assert take(turns, asking(1, 2, 3, owner="a", salt="s")) == mine


def test_a_turn_that_decode_is_about_to_let_go_is_used_up() -> None:
    turns = KeptTurns()
    keep(turns, asking(1), 2)
    assert take(turns, asking(1, 2, 3), DECODER_TTL_S) is None
    assert len(turns) == 0


def test_a_turn_that_prefill_cannot_reach_stays_for_one_that_can() -> None:
    turns = KeptTurns()
    name = keep(turns, asking(1), 2)
    assert take(turns, asking(1, 2, 3), reached=False) is None
    nobody = Instance("http://p", {})
    assert turns.take(asking(1, 2, 3), nobody, lambda worker: True, 0.0) is None
    assert take(turns, asking(1, 2, 3)) == name


def test_the_oldest_make_room() -> None:
    turns = KeptTurns(max_turns=2)
    names = [keep(turns, asking(first), 7) for first in (1, 2, 3)]
    taken = [take(turns, asking(first, 7, 8)) for first in (1, 2, 3)]
    assert taken == [None, *names[1:]]


def test_many_tokens_make_room_too() -> None:
    turns = KeptTurns(max_tokens=10)
    keep(turns, asking(1, 2, 3, 4), 5)
    last = keep(turns, asking(6, 7, 8, 9, 10), 11)
    assert len(turns) == 1
    request = asking(*range(11))
    assert not turns.keep(request, (1,), kept_of("long", 12), D, DECODE, 0.0)
    assert take(turns, asking(6, 7, 8, 9, 10, 11, 12)) == last


def test_the_same_conversation_again_replaces_itself() -> None:
    turns = KeptTurns()
    keep(turns, asking(1), 2, now=0.0)
    name = keep(turns, asking(1), 2, now=DECODER_TTL_S)
    assert len(turns) == 1
    assert take(turns, asking(1, 2, 3), DECODER_TTL_S + 1) == name


def test_a_lost_worker_takes_its_turns_along() -> None:
    turns = KeptTurns()
    keep(turns, asking(1), 2)
    other = kept_of("other", 2)
    turns.keep(asking(3), (4,), other, WorkerId("e"), DECODE, 0.0)
    turns.forget(D)
    assert take(turns, asking(1, 2, 3)) is None
    assert take(turns, asking(3, 4, 5)) == "other"


def test_what_cannot_be_gone_on_from_is_not_kept() -> None:
    turns = KeptTurns()
    unsound = kept_of("n", 2) | {"remote_port": 0}
    for returned in (None, {}, unsound, kept_of("n", 2) | {"remote_num_tokens": 0}):
        assert not turns.keep(asking(1), (2,), returned, D, DECODE, 0.0)
    assert len(turns) == 0
