"""Each client beside what passed the relay."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from splitserve.bench.clients.compare import Row, cross_check, rows_of
from splitserve.bench.clients.guidellm import read_result as read_guidellm
from splitserve.bench.clients.heard import Heard, heard_in
from splitserve.bench.clients.job import Job, Said
from splitserve.bench.clients.lab_client import LabClient
from splitserve.bench.clients.program import found, output_of, run_program
from splitserve.bench.clients.prompts import texts
from splitserve.bench.clients.scripted import Timing, events_of, script_for
from splitserve.bench.clients.tap import Tap
from splitserve.bench.clients.vllm_serve import read_result as read_vllm
from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.mock.server import MockServer

TIMING = Timing(tokens=9, role_s=0.001, first_s=0.004, gap_s=0.002, stall_s=0.01)


def job(url: str, folder: Path) -> Job:
    return Job(url, "m", folder, texts(4, 5, seed=1), 200.0, TIMING.tokens, folder)


def test_the_scripted_answer_has_its_tokens_groups_and_one_stall() -> None:
    events = events_of(Timing(tokens=32))
    assert sum(count for _, count in events) == 32
    assert {count for _, count in events} == {1, 3}
    gaps = [b - a for (a, _), (b, _) in pairwise(events)]
    assert sorted(round(gap, 6) for gap in gaps)[-2:] == [0.02, 0.2]
    assert events[0] == (0.2, 1)


async def test_the_labs_client_says_what_passed(tmp_path: Path) -> None:
    rows: list[Row] = []
    async with MockServer(script_for(TIMING)) as server:
        await cross_check(job(server.url, tmp_path), [LabClient("0")], lambda _: None, rows.extend)
    by_name = {(row.measure, row.figure): row for row in rows}
    assert by_name["answers", "count"].said == by_name["answers", "count"].wire == 4
    longest = by_name["gap of all, ms", "max"]
    assert longest.said is not None
    assert min(longest.said, longest.wire) >= 9
    assert {row.client for row in rows} == {"splitserve lab 0"}
    assert len(rows) == 13


class Lazy:
    """Sends nothing."""

    name = "lazy"

    async def run(self, job: Job) -> Said:
        return Said((), (), ())


async def test_a_client_that_did_not_send_all_has_no_rows(tmp_path: Path) -> None:
    rows: list[Row] = []
    async with MockServer(script_for(TIMING)) as server:
        with pytest.raises(UnavailableError, match="lazy sent 0 requests that were answered"):
            await cross_check(job(server.url, tmp_path), [Lazy()], lambda _: None, rows.extend)
    assert rows == []


@pytest.mark.parametrize("url", ["https://h", "http://h/v1", "h:1"])
async def test_only_a_plain_address_can_be_relayed(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="http://HOST:PORT"):
        await cross_check(job(url, tmp_path), [], lambda _: None, lambda _: None)


async def test_requests_on_one_connection_are_told_apart() -> None:
    body = json.dumps({"stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with MockServer(script_for(TIMING)) as server:
        at = urlsplit(server.url)
        async with Tap(str(at.hostname), int(at.port or 0)) as tap:
            port = urlsplit(tap.url).port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v1/models HTTP/1.1\r\n\r\n")
            await reader.readuntil(b"}]}")
            for _ in range(2):
                writer.write(head + body)
                await reader.readuntil(b"\r\n0\r\n\r\n")
            writer.close()
            await writer.wait_closed()
    first, second = heard_in(tap.connections)
    assert len(first.tokens_s) == len(second.tokens_s) == len(events_of(TIMING))
    assert first.asked_s < first.tokens_s[0] < first.tokens_s[-1] < second.asked_s
    # The role chunk came before, and is no token.
    assert first.ttft_s >= TIMING.first_s - TIMING.role_s


def test_figures_are_values_that_occurred() -> None:
    heard = [Heard(0.0, (0.1, 0.2, 0.5)), Heard(1.0, (1.3, 1.4, 1.5))]
    rows = rows_of("c", Said((0.1, 0.4), None, (0.02, 0.03)), heard, tokens=5)
    values = {(row.measure.split(",")[0], row.figure): (row.said, row.wire) for row in rows}
    assert values["TTFT", "p50"] == (pytest.approx(100), pytest.approx(100))
    assert values["TTFT", "max"] == (pytest.approx(400), pytest.approx(300))
    assert values["gap of all", "max"] == (None, pytest.approx(300))
    assert values["mean gap of a request", "max"] == (pytest.approx(30), pytest.approx(100))


def vllm_file(folder: Path, **changes: object) -> Path:
    saved = {
        "ttfts": [0.2, 0.1],
        "itls": [[0.1, 0.3], [0.5]],
        "start_times": [9.0, 5.0],
        "output_lens": [5, 2],
        "errors": ["", ""],
    }
    file = folder / "vllm.json"
    file.write_text(json.dumps(saved | changes))
    return file


def test_vllms_result_is_read_in_the_order_of_sending(tmp_path: Path) -> None:
    said = read_vllm(vllm_file(tmp_path), 2)
    assert said.ttft_s == (0.1, 0.2)
    assert said.gaps_s == ((0.5,), (0.1, 0.3))
    assert said.mean_gap_s == (0.5, pytest.approx(0.1))


@pytest.mark.parametrize(
    "changes",
    [{"errors": ["", "boom"]}, {"ttfts": [0.1]}, {"itls": None}],
    ids=lambda c: next(iter(c)),
)
def test_a_result_of_vllm_that_is_not_whole_is_refused(
    changes: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match="vllm bench serve"):
        read_vllm(vllm_file(tmp_path, **changes), 2)


def guidellm_report(starts: Sequence[float], errored: Sequence[str] = ()) -> bytes:
    successful = [
        {
            "info": {"timings": {"request_start": at}},
            "time_to_first_token_ms": 100 * at,
            "inter_token_latency_ms": 10 * at,
        }
        for at in starts
    ]
    failed = [{"info": {"error": error}} for error in errored]
    requests = {"successful": successful, "errored": failed}
    return json.dumps({"benchmarks": [{"requests": requests}]}).encode()


def test_guidellms_report_is_read_in_the_order_of_sending() -> None:
    said = read_guidellm(guidellm_report([3, 1]))
    assert said == Said((0.1, 0.3), None, (0.01, 0.03))


@pytest.mark.parametrize(
    "report",
    [guidellm_report([1], ["boom"]), guidellm_report([]), b"{}", b'{"benchmarks": []}'],
    ids=["a failure", "nothing", "another form", "no benchmark"],
)
def test_a_report_of_guidellm_that_says_nothing_is_refused(report: bytes) -> None:
    with pytest.raises(UnavailableError, match="GuideLLM"):
        read_guidellm(report)


async def test_a_program_that_is_not_there_or_fails_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no program 'no-such-client'"):
        found("no-such-client")
    failing = (found("sh"), "-c", "echo why; exit 3")
    with pytest.raises(UnavailableError, match="sh exited with code 3: why"):
        await run_program(failing, tmp_path / "log")
    assert await output_of((found("sh"), "-c", "echo said; echo not >&2")) == "said"


def test_prompts_come_from_the_seed_and_differ() -> None:
    assert texts(20, 8, 1) == texts(20, 8, 1) != texts(20, 8, 2)
    assert len(set(texts(20, 8, 1))) == 20
    assert {len(text.split()) for text in texts(20, 8, 1)} == {8}
