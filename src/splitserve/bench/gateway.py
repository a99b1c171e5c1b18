"""What the gateway adds to every token: latency and CPU, at many slow streams.

Three processes: a worker that notes when tokens leave (this one), the real gateway, and a client
that notes when they arrive. Detokenising, JSON and SSE are the gateway's and are measured.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from tokenizers import Tokenizer

from splitserve.bench.quantile import quantile
from splitserve.bench.raw_client import stream_in_own_process
from splitserve.bench.timed_worker import TimedWorker
from splitserve.clock import monotonic
from splitserve.errors import UnavailableError
from splitserve.modelstore.resolve import resolve

WORDS: Final = " one two three four five six seven eight nine ten the and of to in is it for was on"
READY_S: Final = 30.0
ANSWER_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class GatewayReading:
    """Latencies in milliseconds (arrival at the client minus departure at the worker)."""

    streams: int
    tokens: int
    tokens_per_s: float
    latency_p50_ms: float
    latency_p90_ms: float
    latency_p99_ms: float
    cpu_us_per_token: float
    gateway_rss_mb: float


def measure_gateway(model: str, streams: int, tokens: int, rate: float) -> GatewayReading:
    """``rate`` is tokens per second and stream. Raises UnavailableError if the gateway fails."""
    folder = resolve(model)
    tokenizer = Tokenizer.from_file(str(folder.tokenizer_path))
    ids = [
        i for i in tokenizer.encode(WORDS, add_special_tokens=False).ids if _is_word(tokenizer, i)
    ]
    worker = TimedWorker(ids, 1 / rate, {}, tokenizer.get_vocab_size())
    with tempfile.TemporaryDirectory(prefix="splitserve-bench-") as run_dir:
        address = str(Path(run_dir) / "timed.sock")
        return asyncio.run(_measure(worker, model, folder.served_name, address, streams, tokens))


def _is_word(tokenizer: Tokenizer, token_id: int) -> bool:
    """One blank and then letters: so a client can count tokens in any piece of text."""
    text = str(tokenizer.decode([token_id]))
    return text.startswith(" ") and text[1:].isalpha()


async def _measure(
    worker: TimedWorker, model: str, served: str, address: str, streams: int, tokens: int
) -> GatewayReading:
    serving = asyncio.create_task(worker.serve(address))
    try:
        with _gateway(model, address) as (process, url):
            await _wait_ready(url, process)
            await asyncio.to_thread(_client, url, served, streams, 10)  # warm
            worker.left.clear()
            before, start = _cpu_s(process.pid), monotonic()
            arrived = await asyncio.to_thread(_client, url, served, streams, tokens)
            wall, cpu = monotonic() - start, _cpu_s(process.pid) - before
            rss = _rss_mb(process.pid)
    finally:
        serving.cancel()
    latencies = [
        (arrival - departure) * 1e3
        for marker, times in arrived.items()
        for departure, arrival in zip(worker.left[marker], times, strict=True)
    ]
    return GatewayReading(
        streams=streams,
        tokens=len(latencies),
        tokens_per_s=len(latencies) / wall,
        latency_p50_ms=quantile(latencies, 0.5),
        latency_p90_ms=quantile(latencies, 0.9),
        latency_p99_ms=quantile(latencies, 0.99),
        cpu_us_per_token=cpu / len(latencies) * 1e6,
        gateway_rss_mb=rss,
    )


@contextmanager
def _gateway(model: str, address: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    read_fd, write_fd = os.pipe()
    command = [sys.executable, "-m", "splitserve", "gateway", model]
    command += ["--worker", f"unix:{address}", "--port", "0", "--status-fd", str(write_fd)]
    process = subprocess.Popen(command, pass_fds=(write_fd,), stderr=subprocess.DEVNULL)
    os.close(write_fd)
    try:
        with os.fdopen(read_fd, "rb") as status:
            line = status.readline()
        event = msgspec.json.decode(line) if line else {}
        if event.get("event") != "ready":
            raise UnavailableError(f"the gateway did not start: {event.get('reason', 'it ended')}")
        yield process, f"http://127.0.0.1:{event['port']}"
    finally:
        process.terminate()
        process.wait()


async def _wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = monotonic() + READY_S
    async with aiohttp.ClientSession() as session:
        while monotonic() < deadline and process.poll() is None:
            async with session.get(f"{url}/ready") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.05)
    raise UnavailableError("the gateway did not become ready")


def _client(url: str, model: str, streams: int, tokens: int) -> dict[int, list[float]]:
    """Per stream's marker, when each of its tokens arrived."""
    bodies = [
        msgspec.json.encode(
            {"model": model, "prompt": [marker, 7], "max_tokens": tokens, "stream": True}
        )
        for marker in range(1, streams + 1)
    ]
    answers = stream_in_own_process(f"{url}/v1/completions", bodies, ANSWER_S)
    return {
        marker: [when for when, text in events for _ in range(text.count(" "))]
        for marker, events in enumerate(answers, start=1)
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
