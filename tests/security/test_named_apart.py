"""Ids from two gateways never meet in a worker, whatever clients ask for."""

import msgspec

from frontend.scripted import Gate, ScriptedGenerator, chunks
from splitserve.frontend.request_id import asked_id
from splitserve.ids import RequestId
from splitserve.processes.apart import NamedApart
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.sampling import SamplingParams

REQUEST = GenerateRequest(RequestId("cmpl-same-0"), (1, 2), SamplingParams(seed=1, max_tokens=3))


async def test_one_id_through_two_gateways_is_two() -> None:
    behind = ScriptedGenerator(lambda _: chunks([5, 6, 7]))
    for gateway in (NamedApart(behind), NamedApart(behind)):
        answer = [chunk async for chunk in gateway.generate(REQUEST)]
        assert [chunk.token_ids for chunk in answer] == [(5,), (6,), (7,)]
    one, other = behind.requests
    assert one.request_id != other.request_id
    for request in (one, other):
        assert request.request_id.startswith("cmpl-same-0@")
        assert msgspec.structs.replace(request, request_id=REQUEST.request_id) == REQUEST


async def test_closing_an_answer_early_closes_what_is_behind() -> None:
    behind = ScriptedGenerator(lambda _: [*chunks([5], finish=None), Gate()])
    answer = NamedApart(behind).generate(REQUEST)
    await anext(answer)
    await answer.aclose()
    assert behind.ended.get(timeout=10)[1] == "closed"


def test_no_client_can_ask_for_an_id_with_the_mark() -> None:
    assert asked_id({"headers": [(b"x-request-id", b"a@b@0")]}) == "ab0"
