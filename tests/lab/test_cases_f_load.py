"""Traps in how load is sent: a warm cache, an endpoint that still starts, a throttled client."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flow.cluster import FAKE, Cluster, running
from flow.tiny_model import make_model_folder
from lab.run.tiny_study import url_study
from splitserve.clock import monotonic
from splitserve.errors import UnavailableError
from splitserve.lab.load.arrivals import poisson
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.corpus.synthetic import Shape, Vocabulary, synthetic
from splitserve.lab.load.driver import ClosedLoop, Patience, run_closed, run_open
from splitserve.lab.load.readiness import wait_until_serving
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.schedule import at_offsets, conversations
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.measure.latency import end_to_end_service, end_to_end_user
from splitserve.lab.mock.case import DONE, completion, event, script_of, total
from splitserve.lab.mock.script import Script, Send
from splitserve.lab.mock.server import MockServer
from splitserve.lab.plan.resolve import read_plan
from splitserve.lab.run.validity import lag_limit_s, why_void
from splitserve.lab.stats.quantile import inverse_cdf

VOCABULARY = Vocabulary(1500)
PATIENT = Limits(connect_s=20, first_s=40, gap_s=40, total_s=50)


def unheard(*_: object) -> None:
    """Nobody watches."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    model = str(make_model_folder(tmp_path / "tiny"))
    with running(model, [("colocated", "c0")], FAKE) as started:
        yield started


async def cached_share(cluster: Cluster, users: int, salt: str | None) -> float:
    """Of the prompts' tokens: the same 16 prompts at every call, asked by ``users`` at a time."""
    extra = {} if salt is None else {"cache_salt": salt}
    asking, labels = Asking(cluster.served, extra=extra), Labels("A", "1", monotonic())
    client = LoadClient(await resolve(cluster.url), asking, labels, PATIENT)
    requests = synthetic("measured", 1, 16, Shape(32, 2), VOCABULARY)
    loop = ClosedLoop(users, until_s=1e9)
    records = await run_closed(client, conversations(requests), loop, Patience(), unheard)
    client.close()
    assert {record.outcome for record in records} == {Outcome.OK}
    cached = sum(record.cached_tokens or 0 for record in records)
    return cached / sum(record.prompt_tokens or 0 for record in records)


async def test_f08_a_repeated_seed_meets_no_prompt_of_the_run_before(cluster: Cluster) -> None:
    ladder = [await cached_share(cluster, users, f"run-{users}") for users in (1, 4, 16)]
    again = await cached_share(cluster, 16, "run-16-2")
    assert [*ladder, again] == [0, 0, 0, 0]


async def test_f08_a_warm_cache_shows_in_the_records(cluster: Cluster) -> None:
    shares = [await cached_share(cluster, 4, None) for _ in range(2)]
    assert shares[0] == 0
    assert shares[1] > 0.5


@dataclass
class Starting:
    """A client whose every try takes half a second of its own time and ends as ``what`` says."""

    what: Callable[[float], Outcome]
    now_s: float = 0.0

    def now(self) -> float:
        return self.now_s

    async def send(
        self, request: LoadRequest, intended_s: float, *, cut_s: float, warmup: bool
    ) -> RequestRecord:
        outcome = self.what(self.now_s)
        self.now_s += 0.5
        return RequestRecord(
            request_id=request.request_id,
            arm="A",
            run="1",
            intended_s=intended_s,
            sent_s=intended_s,
            first_byte_s=None,
            events=[],
            ended_s=self.now_s,
            outcome=outcome,
            counting=Counting.EVENTS,
            error=f"at {intended_s} s",
            warmup=warmup,
        )


def slowly(now_s: float) -> Outcome:
    """Refuses for 3 s, is 404 for 3 s and 503 for 3 s, then works."""
    if now_s < 3:
        return Outcome.CONNECT_ERROR
    return Outcome.HTTP_ERROR if now_s < 9 else Outcome.OK


PROBE = LoadRequest("probe", (101,), 1)


async def test_f18_an_endpoint_that_starts_is_waited_for() -> None:
    client = Starting(slowly)
    record = await wait_until_serving(client, PROBE, 30.0, pause_s=0.0)
    assert (record.outcome, client.now_s) == (Outcome.OK, 9.5)


async def test_f18_patience_ends_with_the_timeout_and_not_before() -> None:
    client = Starting(slowly)
    with pytest.raises(UnavailableError, match=r"within 8 s \(16 tries\).*http_error: at 7.5 s"):
        await wait_until_serving(client, PROBE, 8.0, pause_s=0.0)
    assert client.now_s == 8.0


ANSWER_S = 1.0


async def test_f19_a_slow_server_throttles_no_arrival_and_a_late_client_is_told(
    tmp_path: Path,
) -> None:
    """50 requests a second as in the case, for 2 s: `splitserve bench lab` goes on for its 20."""
    words = [event(completion("a", 1, "stop")), total(1), DONE]
    quick = script_of(words, pace_s=0.0)
    slow = Script(tuple(Send(ANSWER_S, send.data) for send in quick.sends))
    offsets = poisson(50.0, 2.0, seed=3)
    requests = synthetic("measured", 3, len(offsets), Shape(8, 1), VOCABULARY)
    async with MockServer(lambda *_: slow) as server:
        labels = Labels("A", "1", monotonic())
        client = LoadClient(await resolve(server.url), Asking("m"), labels, PATIENT)
        schedule = at_offsets(requests, [client.now() + 0.1 + offset for offset in offsets])
        records = await run_open(client, schedule, Patience(40.0, late_s=40.0), unheard)
        client.close()
    sent = [record.sent_s for record in records if record.sent_s is not None]
    assert len(sent) == len(offsets)
    assert {record.outcome for record in records} == {Outcome.OK}
    # Each takes a second: were they sent one after another, or ten at a time, few would be under
    # way together.
    assert max(sum(0 <= at - other < ANSWER_S for other in sent) for at in sent) > 25
    waits = [end_to_end_user(one) - end_to_end_service(one) for one in records]
    assert waits == pytest.approx([one.lag_s for one in records])
    study = read_plan(url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")).study
    lag_s = inverse_cdf([one.lag_s or 0.0 for one in records], 0.99)
    assert (why_void(records, study, (), None) is None) == (lag_s <= lag_limit_s(study))


def test_f19_a_client_that_lags_says_that_it_was_late(tmp_path: Path) -> None:
    study = read_plan(url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")).study
    limit_s = lag_limit_s(study)

    def sent(lag_s: float) -> RequestRecord:
        return RequestRecord(
            request_id="r", arm="A", run="1", intended_s=1.0, sent_s=1.0 + lag_s,
            first_byte_s=9.0, events=[(9.0, 1)], ended_s=9.0, outcome=Outcome.OK,
            counting=Counting.IDS,
        )  # fmt: skip

    assert why_void([sent(limit_s)] * 100, study, (), None) is None
    late = [sent(limit_s)] * 98 + [sent(limit_s + 0.02)] * 2
    assert "the client was late" in (why_void(late, study, (), None) or "")
