"""What the router notes of a request on its way, on a clock moved by hand."""

import asyncio
from pathlib import Path

from router_bench import Answer, Bench, until
from scripted_worker import ScriptedWorker, chunk_of, prompt

from splitserve.ids import RequestId
from splitserve.protocol.control import Began, StepTokens, Submit
from splitserve.protocol.course import Course
from splitserve.protocol.handoff import Prefill, Reserve
from splitserve.router.handoff.orchestrator import Router


class Noted:
    """An answer that is read in the background, and its course."""

    def __init__(self, router: Router, name: str, max_tokens: int) -> None:
        self.course = Course()
        self.tokens: list[int] = []
        self._chunks = router.generate(prompt(name, max_tokens=max_tokens), self.course)
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for chunk in self._chunks:
            self.tokens += chunk.token_ids


def first(worker: ScriptedWorker, name: str, index: int, began: Began, **more: str) -> None:
    chunk = chunk_of(name, index, **more)  # type: ignore[arg-type]
    worker.send(StepTokens((chunk,), (began,)))


async def test_a_whole_answer_has_one_part(bench: Bench) -> None:
    router, c = await bench.colocated()
    noted = Noted(router, "r", 2)
    await c.expect(Submit)
    bench.clock.advance(3.0)
    began = Began(RequestId("r"), 1.0, 1.5)
    first(c, "r", 0, began)
    await until(lambda: noted.course.first is not None)
    bench.clock.advance(5.0)
    c.tokens(chunk_of("r", 1, finish="length"))
    await noted.task
    course = noted.course
    assert course.whole is not None
    assert (course.whole.worker, course.whole.sent, course.whole.spoke) == ("c0", 100.0, 103.0)
    assert course.whole.told == began
    assert (course.arrived, course.begun, course.attempted, course.first) == (100, 100, 100, 103)
    assert (course.prefill, course.decode, course.handoff) == (None, None, None)


async def test_a_split_answer_has_two_parts_and_a_hand_off(bench: Bench) -> None:
    router, p, d = await bench.split()
    noted = Noted(router, "r", 3)
    reserve = await d.expect(Reserve)
    bench.clock.advance(1.0)
    d.grant(reserve.handoff)
    await p.expect(Prefill)
    bench.clock.advance(4.0)
    first(p, "r", 0, Began(RequestId("r"), 1.0, 2.0))
    p.done(RequestId("r"), reserve.handoff)
    await until(lambda: noted.course.handoff is not None)
    bench.clock.advance(2.0)
    first(d, "r", 1, Began(RequestId("r"), 6.0, 0.5))
    d.tokens(chunk_of("r", 2, finish="length"))
    await noted.task
    course = noted.course
    assert course.prefill is not None
    assert course.decode is not None
    assert course.handoff is not None
    assert (course.prefill.sent, course.prefill.spoke, course.first) == (101, 105, 105)
    assert (course.decode.sent, course.decode.spoke) == (100, 107)
    assert course.decode.told == Began(RequestId("r"), 6.0, 0.5)
    assert course.handoff.exposed_s == 0.125


async def test_an_attempt_that_failed_is_no_part_but_its_time_is_known(folder: Path) -> None:
    bench = Bench(folder)
    try:
        p, d = (
            await bench.worker("p0", "prefill"),
            await bench.worker("d0", "decode", linked=("p0",)),
        )
        router = await bench.router()
        noted = Noted(router, "r", 1)
        reserve = await d.expect(Reserve)
        d.grant(reserve.handoff)
        prefill = await p.expect(Prefill)
        bench.clock.advance(2.0)
        p.fail(prefill.request.request_id, "transfer_failed")
        submit = await d.expect(Submit)
        bench.clock.advance(1.0)
        d.tokens(chunk_of(submit.request.request_id, 0, finish="length"))
        await noted.task
        course = noted.course
        assert (course.begun, course.attempted, course.first) == (100, 102, 103)
        assert course.whole is not None
        assert (course.prefill, course.decode) == (None, None)
        assert course.fallbacks == {"recompute: prefill_transfer_failed": 1}
    finally:
        await bench.close()


async def test_what_goes_on_elsewhere_after_the_first_token_is_no_part(bench: Bench) -> None:
    router, p, d = await bench.split()
    noted = Noted(router, "r", 3)
    reserve = await d.expect(Reserve)
    d.grant(reserve.handoff)
    await p.expect(Prefill)
    first(p, "r", 0, Began(RequestId("r"), 1.0, 2.0))
    await until(lambda: noted.course.first is not None)
    p.fail(RequestId("r"), "transfer_failed")
    submit = await d.expect(Submit)
    bench.clock.advance(9.0)
    d.tokens(chunk_of(submit.request.request_id, 1, 2, finish="length"))
    await noted.task
    course = noted.course
    assert course.decode is not None
    assert (course.first, course.decode.spoke, course.whole) == (100, None, None)
    assert list(course.fallbacks) == ["replay: prefill_transfer_failed"]


async def test_a_reader_that_asks_for_no_course_is_served_alike(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r", max_tokens=1))
    await c.expect(Submit)
    first(c, "r", 0, Began(RequestId("r"), 1.0, 1.5), finish="length")
    await answer.ended()
    assert len(answer.tokens) == 1
