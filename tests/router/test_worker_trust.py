"""Workers that are there and not to be trusted with everything: leaving, stuck, broken, astray."""

from router_bench import Answer, Bench, until
from scripted_worker import (
    ScriptedWorker,
    answer_whole,
    chunk_of,
    prompt,
)

from splitserve.ids import RequestId
from splitserve.protocol.codec import Message
from splitserve.protocol.control import Hello, Holding, Inventory, RoleSet, SetRole, Submit
from splitserve.protocol.handoff import Reserve
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.workers.breaker import THRESHOLD
from splitserve.router.workers.pairing import WARM_UP_S
from splitserve.router.workers.reconcile import RECONCILE_EVERY_S
from splitserve.router.workers.record import STALLED_S


async def noticed(router: Router, worker: ScriptedWorker, **changes: object) -> None:
    """Until the gateway has a report of the worker's with these values."""
    changes["steps"] = worker.steps = getattr(worker, "steps", 0) + 1  # type: ignore[attr-defined]
    worker.report(**changes)

    def came() -> bool:
        loads = {s.worker: s.load for s in router.snapshot()}
        load = loads.get(worker.name)
        return load is not None and load.steps == changes["steps"]

    await until(came)


def breaks(worker: ScriptedWorker, message: Message) -> None:
    if isinstance(message, Submit):
        worker.fail(message.request.request_id, "engine")


async def test_a_refusal_for_leaving_counts_before_the_load_says_so(bench: Bench) -> None:
    def leaves(worker: ScriptedWorker, message: Message) -> None:
        if isinstance(message, Submit):
            worker.fail(message.request.request_id, "draining")

    c0 = await bench.worker("c0", "colocated", on_order=leaves)
    router = await bench.router()
    c1 = await bench.worker("c1", "colocated", on_order=answer_whole)
    answer = Answer(router, prompt("r"))
    await c0.expect(Submit)
    await until(lambda: router.ready() is not None)
    assert router.ready() == "no worker is usable: c0: draining"
    router.workers.add(c1.address)
    assert len((await answer.ended()).tokens) == 8
    assert len(c0.all(Submit)) == 1


async def test_a_stream_is_handed_from_one_leaving_worker_to_the_next_and_back(
    bench: Bench,
) -> None:
    workers = [await bench.worker(f"c{n}", "colocated") for n in range(2)]
    router = await bench.router()
    answer = Answer(router, prompt("r", max_tokens=8))
    for index in range(8):
        here, there = workers[index % 2], workers[1 - index % 2]
        submit = await here.expect(Submit, index // 2)
        assert len(submit.emitted) == index
        name = submit.request.request_id
        here.tokens(chunk_of(name, index, finish="length" if index == 7 else None, cached=0))
        await answer.has(index + 1)
        if index < 7:
            here.fail(name, "draining")
            await there.expect(Submit, (index + 1) // 2)
            here.hang_up()
            await here.expect(Hello, index // 2 + 1)
            await until(lambda: router.warnings() == [])
    await answer.ended()
    assert answer.error is None
    assert answer.tokens == [1000 + n for n in range(8)]


async def test_a_worker_with_work_and_no_step_is_not_ready_and_says_since_when(
    bench: Bench,
) -> None:
    router, c = await bench.colocated()
    await noticed(router, c, waiting=3, since_step_s=STALLED_S - 0.1)
    assert router.ready() is None
    await noticed(router, c, waiting=3, since_step_s=STALLED_S + 2)
    assert router.ready() == "no worker is usable: c0: has work and made no step for 12 s"
    (snapshot,) = router.snapshot()
    assert snapshot.load is not None
    assert snapshot.load.since_step_s == STALLED_S + 2
    await noticed(router, c)
    assert router.ready() is None


async def test_the_first_ready_waits_for_links_and_later_ones_do_not(bench: Bench) -> None:
    await bench.worker("p0", "prefill")
    d = await bench.worker("d0", "decode")
    router = await bench.router(calm=False)
    await until(lambda: router.ready() == "p0 and d0 are being linked")
    await noticed(router, d, linked=("p0",))
    assert router.ready() is None
    await noticed(router, d, linked=())
    assert router.ready() is None


async def test_the_first_ready_waits_for_a_worker_that_was_not_met_yet_but_not_for_long(
    bench: Bench,
) -> None:
    await bench.worker("d0", "decode")
    router = await bench.router()
    router.workers.add(f"unix:{bench.folder}/nobody.sock")
    assert router.ready() == f"unix:{bench.folder}/nobody.sock is being connected"
    bench.clock.advance(WARM_UP_S)
    await until(lambda: router.ready() is None)


async def test_a_link_that_cannot_be_made_does_not_keep_the_gateway_shut(bench: Bench) -> None:
    await bench.worker("p0", "prefill")
    await bench.worker("d0", "decode")
    router = await bench.router(calm=False)
    await until(lambda: router.ready() == "p0 and d0 are being linked")
    bench.clock.advance(WARM_UP_S)
    assert router.ready() is None


async def test_a_worker_that_only_fails_is_left_alone_and_comes_back_when_it_heals(
    bench: Bench,
) -> None:
    bad = await bench.worker("c0", "colocated", on_order=breaks)
    await bench.worker("c1", "colocated", on_order=answer_whole)
    router = await bench.router()
    for number in range(40):
        answer = await Answer(router, prompt(f"r{number}")).ended()
        assert answer.error is None
        assert len(answer.tokens) == 8
    assert len(bad.all(Submit)) == THRESHOLD
    assert router.snapshot()[0].breaker == "open"
    bad.on_order = answer_whole
    bench.clock.advance(1.0)
    assert router.snapshot()[0].breaker == "half_open"
    for number in range(4):
        await Answer(router, prompt(f"s{number}")).ended()
    assert router.snapshot()[0].breaker == "closed"
    assert len(bad.all(Submit)) > THRESHOLD


async def test_a_broken_worker_is_better_than_none(bench: Bench) -> None:
    router, bad = await bench.colocated(on_order=breaks)
    for number in range(THRESHOLD):
        await Answer(router, prompt(f"r{number}")).ended()
    assert router.snapshot()[0].breaker == "open"
    bad.on_order = answer_whole
    assert len((await Answer(router, prompt("s")).ended()).tokens) == 8


async def test_a_worker_that_dies_of_its_requests_opens_its_breaker(bench: Bench) -> None:
    c0 = await bench.worker("c0", "colocated", on_order=lambda w, m: _die(w, m))
    await bench.worker("c1", "colocated", on_order=answer_whole)
    router = await bench.router()
    for number in range(20):
        answer = await Answer(router, prompt(f"r{number}")).ended()
        assert answer.error is None
        await until(lambda: router.warnings() == [])
    assert len(c0.all(Submit)) == THRESHOLD
    assert router.snapshot()[0].breaker == "open"


def _die(worker: ScriptedWorker, message: Message) -> None:
    if isinstance(message, Submit):
        worker.hang_up()


async def test_the_callers_faults_open_nothing(bench: Bench) -> None:
    def refuses(worker: ScriptedWorker, message: Message) -> None:
        if isinstance(message, Submit):
            worker.fail(message.request.request_id, "invalid")

    router, _ = await bench.colocated(on_order=refuses)
    for number in range(2 * THRESHOLD):
        await Answer(router, prompt(f"r{number}")).ended()
    assert router.snapshot()[0].breaker == "closed"


# Roles


async def test_a_worker_is_used_in_the_role_that_it_reports(bench: Bench) -> None:
    a = await bench.worker("a", "decode", on_order=answer_whole)
    b = await bench.worker("b", "decode", on_order=answer_whole)
    router = await bench.router()
    assert router.workers.set_role(a.name, "prefill", 1.5)
    assert await a.expect(SetRole) == SetRole("prefill", 1.5)
    a.send(RoleSet("prefill"))
    await noticed(router, a, role="prefill")
    await noticed(router, b, linked=("a",))
    assert [s.role for s in router.snapshot()] == ["prefill", "decode"]
    answer = Answer(router, prompt("r"))
    reserve = await b.expect(Reserve)
    assert reserve.writer == "a"
    await answer.leave()


async def test_a_worker_that_is_not_there_takes_no_role(bench: Bench) -> None:
    router, c = await bench.colocated()
    await c.stop()
    await until(lambda: router.warnings() != [])
    assert not router.workers.set_role(c.name, "prefill")


# Strays


async def asked(router: Router, bench: Bench, worker: ScriptedWorker, nth: int = 0) -> Inventory:
    bench.clock.advance(RECONCILE_EVERY_S)
    router.tick()
    return await worker.expect(Inventory, nth)


async def test_what_the_worker_holds_for_nobody_is_aborted_and_counted(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r"))
    await c.expect(Submit)
    question = await asked(router, bench, c)
    c.send(Holding(question.serial, (RequestId("r"), RequestId("stray"))))
    await until(lambda: c.aborted() == ["stray"])
    assert router.snapshot()[0].aborted_strays == 1
    assert router.snapshot()[0].failed_strays == 0
    await answer.leave()


async def test_what_the_worker_does_not_know_goes_on_elsewhere_at_once(bench: Bench) -> None:
    c0 = await bench.worker("c0", "colocated")
    router = await bench.router()
    answer = Answer(router, prompt("r"))
    submit = await c0.expect(Submit)
    c0.tokens(chunk_of(submit.request.request_id, 0, n=3, cached=0))
    await answer.has(3)
    c1 = await bench.worker("c1", "colocated", on_order=answer_whole)
    router.workers.add(c1.address)
    await until(lambda: len(router.snapshot()) == 2 and router.warnings() == [])
    question = await asked(router, bench, c0)
    c0.send(Holding(question.serial, ()))
    await answer.ended()
    assert answer.error is None
    assert answer.tokens == [1000 + n for n in range(8)]
    assert router.snapshot()[0].failed_strays == 1
    assert ("replay", "worker_forgotten") in bench.notes.fallbacks


async def test_what_begins_or_ends_while_the_question_is_out_is_no_stray(bench: Bench) -> None:
    router, c = await bench.colocated()
    ending = Answer(router, prompt("ending"))
    await c.expect(Submit)
    question = await asked(router, bench, c)
    beginning = Answer(router, prompt("beginning"))
    await c.expect(Submit, 1)
    await ending.leave()
    c.send(Holding(question.serial, (RequestId("ending"),)))
    await noticed(router, c)
    assert c.aborted() == ["ending"]
    snapshot = router.snapshot()[0]
    assert (snapshot.aborted_strays, snapshot.failed_strays) == (0, 0)
    await beginning.leave()


async def test_a_worker_that_comes_back_is_asked_anew(bench: Bench) -> None:
    router, c = await bench.colocated()
    await asked(router, bench, c)
    c.hang_up()
    await until(lambda: router.warnings() == ["c0: not connected"])
    await until(lambda: router.warnings() == [])
    await asked(router, bench, c, 1)
