"""What came of placements reaches the policy and the observer."""

from prometheus_client import CollectorRegistry
from router_bench import Answer, Bench, until
from scripted_worker import (
    ScriptedWorker,
    chunk_of,
    grant_always,
    prefill_into,
    prompt,
)

from splitserve.ids import RequestId, WorkerId
from splitserve.processes.gateway_metrics import RouterMetrics
from splitserve.protocol.control import Submit
from splitserve.protocol.handoff import Prefill, Reserve
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.policy.base import Estimate, Observation, Placement

D, P = WorkerId("d0"), WorkerId("p0")


async def quick(bench: Bench) -> Router:
    """Workers that answer at once, a prefill worker that says it took 0.875 s, placed by cost."""
    d = await bench.worker("d0", "decode", linked=("p0",), on_order=grant_always)
    await bench.worker("p0", "prefill", on_order=prefill_into(d))
    return await bench.router(policy="cost")


async def prefilling(p: ScriptedWorker, d: ScriptedWorker) -> Prefill:
    reserve = await d.expect(Reserve)
    d.grant(reserve.handoff)
    return await p.expect(Prefill)


async def test_a_split_is_observed_from_its_placement_to_the_handover(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", tokens=20, max_tokens=2))
    await d.expect(Reserve)
    bench.clock.advance(0.5)
    prefill = await prefilling(p, d)
    bench.clock.advance(0.25)
    p.tokens(chunk_of("r", 0))
    await answer.has(1)
    assert bench.notes.observations == []
    bench.clock.advance(0.25)
    p.done(RequestId("r"), prefill.target.handoff)
    d.tokens(chunk_of("r", 1, finish="length"))
    await answer.ended()
    await until(lambda: len(bench.notes.observations) == 1)
    (placement,) = bench.notes.placements
    assert bench.notes.observations == [Observation(placement, 20, 1.0, 0.25, 0.5, 0.125)]


async def test_a_whole_request_is_observed_to_its_first_token(bench: Bench) -> None:
    router, c = await bench.colocated()
    answer = Answer(router, prompt("r", tokens=20, max_tokens=2))
    await c.expect(Submit)
    bench.clock.advance(0.5)
    c.tokens(chunk_of("r", 0))
    await answer.has(1)
    bench.clock.advance(3.0)
    c.tokens(chunk_of("r", 1, finish="length"))
    await answer.ended()
    (placement,) = bench.notes.placements
    assert bench.notes.observations == [Observation(placement, 20, 0.5)]


async def test_what_was_done_after_a_failure_is_not_observed(bench: Bench) -> None:
    router, p, d = await bench.split()
    answer = Answer(router, prompt("r", max_tokens=2))
    await prefilling(p, d)
    p.fail(RequestId("r"), "engine")
    submit = await d.expect(Submit)
    d.tokens(chunk_of(submit.request.request_id, 0, 2, finish="length"))
    await answer.ended()
    assert answer.error is None
    assert bench.notes.outcomes == [("r", "done")]
    assert bench.notes.observations == []


async def test_a_router_by_cost_learns_from_its_own_requests(bench: Bench) -> None:
    router, notes = await quick(bench), bench.notes
    for i in range(60):
        answer = await Answer(router, prompt(f"r{i}", max_tokens=2)).ended()
        assert answer.error is None
        await until(lambda done=i + 1: len(notes.observations) == done)  # type: ignore[misc]
    assert [seen.placement for seen in notes.observations] == notes.placements
    first, last = notes.placements[0], notes.placements[-1]
    assert (first.prefill, first.estimate) == (P, Estimate(0, None, None))
    # The clock of this test stands still: whole answers take no time at all.
    assert (last.decode, last.prefill) == (D, None)
    assert last.estimate == Estimate(0, 0.0, 0.875)
    assert bench.notes.fallbacks == []
    assert last.reason.startswith("whole: whole 0.0 ms and 0.0 ms of others', split 875.0 ms")


def test_metrics_say_which_way_and_how_far_from_what_was_predicted() -> None:
    metrics, registry = RouterMetrics(), CollectorRegistry()
    metrics.register(registry)
    blank, known = Estimate(0, None, None), Estimate(0, 0.5, 0.75)
    metrics.placed(RequestId("r"), Placement(D, P, ""))
    metrics.observed(Observation(Placement(D, None, "", blank), 10, 0.01))
    metrics.observed(Observation(Placement(D, P, "", known), 10, 1.0))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("splitserve_placements_total", way="split") == 1
    assert value("splitserve_placement_prediction_error_seconds_count") == 1
    assert value("splitserve_placement_prediction_error_seconds_sum") == 0.25
