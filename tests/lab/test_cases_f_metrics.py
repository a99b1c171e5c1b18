"""Traps that benchmark clients have fallen into, with the values that are right; one test each."""

import math
import random
from itertools import combinations

import pytest

from lab.streams import DONE, delta, event, record_of, text, usage
from splitserve.clock import monotonic
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.record import Counting, Outcome, RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.wire.answer import digest_of
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.sse import SseEvent, SseParser
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.measure.attainment import Slo, goodput, is_good
from splitserve.lab.measure.latency import (
    answer_wait,
    end_to_end_user,
    gaps,
    time_per_token,
    token_gaps,
    ttft_user,
)
from splitserve.lab.measure.outcomes import tally
from splitserve.lab.mock import case as mocked
from splitserve.lab.mock.script import Ending, Script, Send
from splitserve.lab.mock.server import MockServer
from splitserve.lab.run.handoffs import run_handoffs
from splitserve.lab.stats.quantile import linear, quantile


@pytest.mark.parametrize("counted_by", ["ids", "usage"])
def test_f01_chunks_are_not_tokens(counted_by: str) -> None:
    def said(t_s: float, tokens: int, so_far: int, finish: str | None) -> tuple[float, bytes]:
        if counted_by == "ids":
            return t_s, text("x" * tokens, tokens, finish)
        choice = {"index": 0, "text": "x" * tokens, "finish_reason": finish}
        return t_s, event({"choices": [choice], "usage": {"completion_tokens": so_far}})

    stream = [said(0.1, 1, 1, None), said(0.2, 4, 5, None), said(0.3, 4, 9, "stop")]
    one = record_of([*stream, (0.3, usage(9)), (0.3, DONE)])
    assert sum(tokens for _, tokens in one.events) == one.output_tokens == 9
    assert ttft_user(one) == pytest.approx(0.100)
    assert time_per_token(one) == pytest.approx(0.025)
    assert token_gaps(one) == pytest.approx([0.025] * 8)


def test_f01_without_counts_there_are_gaps_between_chunks_only() -> None:
    one = record_of([(0.1, text("a")), (0.2, text("bcde")), (0.3, text("fghi", None, "stop"))])
    assert one.counting is Counting.EVENTS
    assert gaps(one) == pytest.approx([0.1, 0.1])
    assert (token_gaps(one), time_per_token(one)) == (None, None)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_f04_ttft_ends_with_the_first_token_of_any_channel(field: str) -> None:
    role = (0.050, delta({"role": "assistant", "content": ""}))
    thought = record_of(
        [role, (0.120, delta({field: "hm"})), (0.900, delta({"content": "a"}, "stop")), (1.0, DONE)]
    )
    assert (ttft_user(thought), answer_wait(thought)) == (0.120, 0.900)
    ends = [(0.5, delta({field: "so"}, "length")), (0.6, usage(2)), (0.6, DONE)]
    only = record_of([role, (0.120, delta({field: "hm"})), *ends])
    assert (ttft_user(only), answer_wait(only)) == (0.120, None)
    # Neither the role nor the usage is a token.
    assert [tokens for _, tokens in only.events] == [0, 1, 1, 0, 0]
    assert end_to_end_user(only) == 0.5


def test_f05_an_event_split_in_its_name_and_in_its_text_keeps_both() -> None:
    rest = b' b"}]}\n\ndata: [DONE]\n\n'
    one = record_of([(1.0, b"data:"), (2.0, b' {"choices":[{"text":"a'), (3.0, rest)])
    assert one.digest == digest_of("a b")
    assert one.events == [(3.0, 1), (3.0, 0)]


def test_f05_every_split_in_two_and_three_gives_the_same_events_at_the_times_of_their_ends() -> (
    None
):
    stream = b"".join(b'data: {"t":"%d b"}\n\n' % number for number in range(10))
    ends = [at + 2 for at in range(len(stream)) if stream[at : at + 2] == b"\n\n"]
    datas = [event.data for event in SseParser().feed(0.0, stream)]
    assert len(datas) == len(ends) == 10
    for first, second in combinations(range(1, len(stream) + 1), 2):
        parser = SseParser()
        found: list[SseEvent] = []
        cuts = (0, first, second, len(stream))
        for read in range(3):
            found += parser.feed(float(read), stream[cuts[read] : cuts[read + 1]])
        assert [one.data for one in found] == datas
        assert [one.t_s for one in found] == [(end > first) + (end > second) for end in ends]


def test_f06_all_that_a_stream_may_hold_is_read_and_a_comment_sets_no_ttft() -> None:
    split_json = b'data: {"choices":\r\ndata: [{"text":"a"}]}\r\n\r\n'
    one = record_of(
        [
            (0.1, b": keep-alive\n\n"),
            (0.2, b"retry: 3000\nid: 7\nevent: message\n"),
            (0.3, split_json),
            (0.4, b'data:{"choices":[{"text":"b"}]}\r\r'),
            (0.5, b':\n\ndata: {"choices":[{"text":"c","finish_reason":"stop"}]}\n\n'),
            (0.6, b"data: [DONE]"),
        ]
    )
    assert one.outcome is Outcome.NO_USAGE
    assert ttft_user(one) == 0.3
    assert [t_s for t_s, tokens in one.events if tokens] == [0.3, 0.4, 0.5]
    assert one.digest == digest_of("abc")


async def test_f07_failures_are_told_by_kind_and_no_latency_gains_by_them() -> None:
    words = [mocked.event(mocked.completion("a", 1)) for _ in range(3)]
    last = mocked.event(mocked.completion("a", 1, "stop"))
    fine = mocked.script_of([*words, last, mocked.total(4), mocked.DONE], pace_s=0.0)
    busy = Script((Send(0.0, b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy"),))
    dies = mocked.script_of(words, last=b"", ending=Ending.RESET, pace_s=0.0)
    scripts = {f"fine-{at}": fine for at in range(7)}
    scripts |= {"refused": busy, "dies": dies, "never starts": Script((), Ending.HOLD)}
    limits = Limits(connect_s=20, first_s=20, gap_s=20, total_s=20)
    async with MockServer(lambda name, _: scripts[name]) as server:
        target = await resolve(server.url)
        client = LoadClient(target, Asking("m"), Labels("A", "1", monotonic()), limits)
        records = []
        for name in scripts:
            cut_s = client.now() + (0.2 if name == "never starts" else 20)
            request = LoadRequest(name, (101,), 4)
            records.append(await client.send(request, client.now(), cut_s=cut_s))
        client.close()
    found = tally(records)
    assert found.outcomes == {
        Outcome.OK: 7,
        Outcome.HTTP_ERROR: 1,
        Outcome.TRUNCATED: 1,
        Outcome.TIMEOUT_TOTAL: 1,
    }
    assert (found.failed, found.completed_tokens, found.partial_tokens) == (3, 28, 3)
    times = [ttft_user(record) for record in records]
    assert sum(math.isfinite(value) for value in times) == 7
    assert quantile(times, 0.7).value == max(value for value in times if math.isfinite(value))
    assert all(value >= 0 for value in times)
    assert all(record.ended_s >= record.intended_s >= 0 for record in records)


def test_f10_the_server_s_count_wins_over_what_the_text_looks_like() -> None:
    at = [0.1071 + (6.4708 - 0.1071) * step / 126 for step in range(127)]
    stream = [(t_s, text("word ", None, "length" if t_s == at[-1] else None)) for t_s in at]
    one = record_of([*stream, (6.4708, usage(1000)), (6.4708, DONE)])
    assert time_per_token(one) == pytest.approx((6.4708 - 0.1071) / 999)
    assert time_per_token(one) == pytest.approx(0.00637, abs=5e-6)
    # The discrepancy is an outcome of its own, and both counts are in the record.
    assert one.outcome is Outcome.COUNT_MISMATCH
    assert (one.output_tokens, sum(tokens for _, tokens in one.events)) == (1000, 127)


def test_f12_answers_of_one_token_give_no_sample_of_the_time_per_token() -> None:
    def answer(tokens: int) -> RequestRecord:
        ends = ["stop" if at == tokens - 1 else None for at in range(tokens)]
        return record_of([(0.1 + 0.02 * at, text("a", 1, end)) for at, end in enumerate(ends)])

    records = [answer(1), answer(1), answer(5)]
    samples = [value for one in records if (value := time_per_token(one)) is not None]
    assert samples == [pytest.approx(0.020)]
    # With one token there is no gap that could miss its limit: the first token decides.
    assert is_good(records[0], Slo(ttft_s=0.1, itl_s=0.001))
    assert not is_good(records[0], Slo(ttft_s=0.05, itl_s=0.001))


def test_f13_goodput_judges_every_request_by_its_own_times() -> None:
    def answer(ttft_ms: int, tpot_ms: int) -> RequestRecord:
        first_s = ttft_ms / 1000
        return record_of(
            [(first_s, text("a", 1)), (first_s + tpot_ms / 1000, text("b", 1, "stop"))]
        )

    failed = record_of([(0.1, text("a", 1))])
    records = [answer(400, 50), answer(600, 50), answer(400, 150), answer(500, 100), failed]
    slo = Slo(ttft_s=0.5, itl_s=0.1)
    assert [is_good(one, slo) for one in records] == [True, False, False, True, False]
    for seed in range(5):
        shuffled = random.Random(seed).sample(records, len(records))
        assert goodput(shuffled, slo, 10.0) == pytest.approx(0.2)


def test_f14_percentiles_are_values_none_or_beyond_the_edge_and_never_made_up() -> None:
    sample = [10.0, 20.0, 30.0, 40.0]
    # Linear is what other tools print; ours is always a value that occurred.
    assert [linear(sample, p) for p in (0.5, 0.9, 0.99)] == pytest.approx([25.0, 37.0, 39.7])
    assert [quantile(sample, p).value for p in (0.5, 0.9, 0.99)] == [20.0, 40.0, 40.0]
    assert (linear([7.0], 0.99), quantile([7.0], 0.99).value) == (7.0, 7.0)
    assert (linear([], 0.5), quantile([], 0.5).value) == (None, None)


def test_f14_a_histogram_whose_tail_overflows_gives_no_number() -> None:
    after = {
        'splitserve_handoff_exposed_seconds_bucket{le="1.0"}': 90.0,
        'splitserve_handoff_exposed_seconds_bucket{le="+Inf"}': 100.0,
        'splitserve_placements_total{way="split"}': 100.0,
    }
    found = run_handoffs({}, after)
    assert found is not None
    assert found.p95_s == math.inf
