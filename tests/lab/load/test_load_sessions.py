"""Conversations: what was served is what the next turn begins with."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from splitserve.clock import monotonic
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.driver import Patience, run_open
from splitserve.lab.load.history import Histories, Served, served_by
from splitserve.lab.load.record import Outcome
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.schedule import Due
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.mock.case import DONE, chat, completion, event, script_of, total
from splitserve.lab.mock.script import Ending, Script
from splitserve.lab.mock.server import MockServer

TURNS = tuple(
    LoadRequest(
        f"t{turn}",
        (10 + turn, 20 + turn),
        2,
        session="s",
        turn=turn,
        follows=turn > 0,
        instead=(90 + turn,) if turn else (),
    )
    for turn in range(3)
)
CHATS = tuple(
    LoadRequest(
        f"t{turn}",
        ({"role": "user", "content": f"q{turn}"},),
        2,
        session="s",
        turn=turn,
        follows=turn > 0,
    )
    for turn in range(2)
)


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[LoadClient]:
    labels = Labels("A", "1", monotonic())
    client = LoadClient(await resolve(url), Asking("m"), labels, Limits())
    try:
        yield client
    finally:
        client.close()


class Talking:
    """Answers each request by its id, and keeps what it was asked."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self.asked: dict[str, dict] = {}
        self._scripts = scripts

    def __call__(self, request_id: str, body: bytes) -> Script:
        self.asked[request_id] = json.loads(body)
        return self._scripts[request_id]


async def talk(scripts: dict[str, Script], turns: tuple[LoadRequest, ...]) -> tuple[Talking, list]:
    talking = Talking(scripts)
    async with MockServer(talking) as server, client_of(server.url) as client:
        records = await run_open(client, [Due(0.0, turns)], Patience(late_s=20), lambda *_: None)
    return talking, records


def ids_answer(*ids: int) -> Script:
    chunks = [completion("x", 1) for _ in ids]
    for chunk, one in zip(chunks, ids, strict=True):
        chunk["choices"][0]["token_ids"] = [one]
    chunks[-1]["choices"][0]["finish_reason"] = "length"
    return script_of([*map(event, chunks), total(len(ids)), DONE], pace_s=0.0)


async def test_a_turn_is_asked_after_the_ids_that_were_served() -> None:
    scripts = {"t0": ids_answer(7, 8), "t1": ids_answer(5, 6), "t2": ids_answer(1, 2)}
    talking, records = await talk(scripts, TURNS)
    assert [record.outcome for record in records] == [Outcome.OK] * 3
    assert talking.asked["t0"]["prompt"] == [10, 20]
    assert talking.asked["t1"]["prompt"] == [10, 20, 7, 8, 11, 21]
    assert talking.asked["t2"]["prompt"] == [10, 20, 7, 8, 11, 21, 5, 6, 12, 22]


async def test_made_ids_stand_in_where_the_server_gives_none() -> None:
    text = script_of([event(completion("x", None, "length")), total(2), DONE], pace_s=0.0)
    talking, _ = await talk({"t0": text, "t1": text, "t2": text}, TURNS)
    assert talking.asked["t1"]["prompt"] == [10, 20, 91, 11, 21]


async def test_a_chat_goes_on_with_the_answers_text_without_its_reasoning() -> None:
    pieces = [
        chat({"role": "assistant", "content": ""}),
        chat({"reasoning_content": "hm"}, 1),
        chat({"content": "he"}, 1),
        chat({"content": "llo"}, 1, "stop"),
    ]
    script = script_of([*map(event, pieces), total(3), DONE], pace_s=0.0)
    talking, _ = await talk({"t0": script, "t1": script}, CHATS)
    assert talking.asked["t1"]["messages"] == [
        {"role": "user", "content": "q0"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "q1"},
    ]


async def test_an_answer_that_broke_off_stands_as_far_as_it_came() -> None:
    torn = script_of([event(completion("x", 1))], last=b"", ending=Ending.CLOSE, pace_s=0.0)
    answer = ids_answer(5, 6)
    talking, records = await talk({"t0": torn, "t1": answer, "t2": answer}, TURNS)
    assert [record.outcome for record in records] == [Outcome.TRUNCATED, Outcome.OK, Outcome.OK]
    assert talking.asked["t1"]["prompt"] == [10, 20, 0, 11, 21]


def test_a_turn_that_was_never_sent_is_part_of_what_was_said() -> None:
    histories = Histories()
    for turn in TURNS[:2]:
        histories.whole(turn)
    assert histories.whole(TURNS[2]).prompt == (10, 20, 11, 21, 12, 22)


def test_conversations_do_not_mix_and_single_requests_have_none() -> None:
    histories = Histories()
    single = LoadRequest("r", (1,), 2)
    assert histories.whole(single) is single
    histories.whole(TURNS[0])
    histories.answered(TURNS[0], Served((7,), "x"))
    other = LoadRequest("o", (3,), 2, session="other", follows=True)
    assert histories.whole(other).prompt == (3,)
    assert histories.whole(TURNS[1]).prompt == (10, 20, 7, 11, 21)


def test_what_is_no_chunk_is_left_out_of_an_answer() -> None:
    ids = b'{"choices":[{"text":"a","token_ids":[4]}]}'
    assert served_by([b"[DONE]", b"nonsense", b'{"choices":[]}', ids]) == Served((4,), "a")
    assert served_by([b'{"choices":[{"text":"a"}]}']) == Served(None, "a")
    assert served_by([]) == Served((), "")
