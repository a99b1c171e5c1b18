"""The lab's load client against a vLLM server that nothing stands before."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from vllm_fleet import CORES
from vllm_instance import Instance

from splitserve.clock import monotonic
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.corpus.synthetic import (
    SessionShape,
    Shape,
    Vocabulary,
    synthetic,
    synthetic_sessions,
)
from splitserve.lab.load.driver import Patience, run_open
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest, Message
from splitserve.lab.load.schedule import Due, conversations
from splitserve.lab.load.spread.crew import Crew
from splitserve.lab.load.spread.work import split, work_of
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.launch.ports import free_ports

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

VOCAB = Vocabulary(40_000)
PATIENCE = Patience(drain_s=60, late_s=60)
TOKENS = 12


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    run_dir = tmp_path_factory.mktemp("alone")
    port, side_port = free_ports(2)
    core = CORES["decode"]
    instance = Instance("v0", "decode", folder, run_dir, "NixlConnector", port, side_port, core)
    try:
        instance.start()
        instance.wait_ready()
        yield instance
    finally:
        instance.stop()
    assert not instance.left()


def completions(count: int) -> list[LoadRequest]:
    return synthetic("completions", 3, count, Shape(40, TOKENS), VOCAB)


def chats(count: int) -> list[LoadRequest]:
    asked: list[tuple[Message, ...]] = [
        ({"role": "user", "content": f"Count from {at} on."},) for at in range(count)
    ]
    return [LoadRequest(f"chat-{at}", messages, TOKENS) for at, messages in enumerate(asked)]


async def sent(
    instance: Instance, talks: list[tuple[LoadRequest, ...]], *, with_token_ids: bool = True
) -> list[RequestRecord]:
    """Twenty a second, so that answers overlap."""
    asking = Asking("smollm2", with_token_ids=with_token_ids)
    labels = Labels("vllm", "1", monotonic())
    client = LoadClient(await resolve(instance.url), asking, labels, Limits())
    schedule = [Due(at / 20, turns) for at, turns in enumerate(talks)]
    try:
        return await run_open(client, schedule, PATIENCE, lambda *_: None)
    finally:
        client.close()


def check_whole(records: list[RequestRecord], counting: Counting) -> None:
    """Every token is counted where it came, and all of them are what the server says."""
    for record in records:
        assert record.outcome is Outcome.OK, (record.request_id, record.outcome, record.error)
        assert record.counting is counting
        assert record.done
        assert record.finish_reason == "length"
        assert record.output_tokens == sum(count for _, count in record.events) == TOKENS
        times = [t_s for t_s, _ in record.events]
        assert times == sorted(times)


@pytest.mark.parametrize("with_token_ids", [True, False], ids=["by ids", "by usage"])
async def test_every_answer_is_complete_and_its_tokens_are_exact(
    alone: Instance, with_token_ids: bool
) -> None:
    asked = [*completions(16), *chats(8)]
    records = await sent(alone, [(one,) for one in asked], with_token_ids=with_token_ids)
    assert sorted(one.request_id for one in records) == sorted(one.request_id for one in asked)
    check_whole(records, Counting.IDS if with_token_ids else Counting.USAGE)
    of_ids = [one for one in records if one.request_id.startswith("completions")]
    assert {one.prompt_tokens for one in of_ids} == {40}


async def test_a_turn_comes_after_the_answer_and_carries_it(alone: Instance) -> None:
    shape = SessionShape(turns=3, first_tokens=30, turn_tokens=10, max_tokens=TOKENS, think_s=0.0)
    talks = conversations(synthetic_sessions("talks", 5, 4, shape, VOCAB))
    records = await sent(alone, talks)
    check_whole(records, Counting.IDS)
    for talk in talks:
        turns = [one for one in records if one.session == talk[0].session]
        turns.sort(key=lambda one: one.turn)
        assert [one.prompt_tokens for one in turns] == [30, 52, 74]
        for earlier, later in pairwise(turns):
            assert later.sent_s is not None
            assert later.sent_s >= earlier.ended_s


async def test_nothing_is_lost_between_several_processes(alone: Instance) -> None:
    asked = completions(20)
    schedule = [Due(at / 20, (one,)) for at, one in enumerate(asked)]
    work = work_of(
        (alone.url, {}), Asking("smollm2"), ("vllm", "1"), Limits(), (PATIENCE, schedule)
    )
    records: list[RequestRecord] = []
    async with Crew(split(work, 2)) as crew:
        crew.begin()
        await crew.records(records.append)
    assert sorted(one.request_id for one in records) == sorted(one.request_id for one in asked)
    check_whole(records, Counting.IDS)
