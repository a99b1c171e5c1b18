"""``splitserve bench clients``: the lab's load client beside those of others, on one server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from splitserve.bench.clients.compare import Row, cross_check
from splitserve.bench.clients.guidellm import GuideLlm
from splitserve.bench.clients.job import Job, LoadTool
from splitserve.bench.clients.lab_client import LabClient
from splitserve.bench.clients.program import found, output_of
from splitserve.bench.clients.prompts import texts
from splitserve.bench.clients.scripted import Timing, script_for
from splitserve.bench.clients.vllm_serve import VllmServe
from splitserve.bench.served_model import served_model
from splitserve.cli.readings import print_progress, print_readings
from splitserve.lab.mock.server import MockServer
from splitserve.modelstore.resolve import resolve


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says. ``url`` None: the scripted server; a program None: left out.

    ``words`` and ``tokens`` are of each chat and of each answer, ``rate`` requests a second.
    """

    url: str | None
    model: str
    vllm: str | None
    guidellm: str | None
    requests: int
    rate: float
    words: int
    tokens: int
    seed: int


def run(
    *,
    url: str | None,
    model: str,
    vllm: str | None,
    guidellm: str | None,
    requests: int,
    rate: float,
    words: int,
    tokens: int,
    seed: int,
    as_json: bool,
) -> int:
    """Prints a line per client, measure and figure; each client's when it is done."""
    asked = Asked(url, model, vllm, guidellm, requests, rate, words, tokens, seed)
    tokenizer = resolve(asked.model).path
    with TemporaryDirectory(prefix="splitserve-clients-") as folder:
        asyncio.run(
            _measure(asked, tokenizer, Path(folder), lambda rows: print_readings(rows, as_json))
        )
    return 0


async def _measure(
    asked: Asked, tokenizer: Path, folder: Path, keep: Callable[[Sequence[Row]], None]
) -> None:
    tools = await _tools(asked)
    async with _server(asked) as url:
        job = Job(
            url=url,
            model=await served_model(url),
            tokenizer=tokenizer,
            prompts=texts(asked.requests, asked.words, asked.seed),
            rate=asked.rate,
            tokens=asked.tokens,
            folder=folder,
        )
        await cross_check(job, tools, print_progress, keep)


async def _tools(asked: Asked) -> list[LoadTool]:
    tools: list[LoadTool] = [LabClient(version("splitserve"))]
    if asked.vllm is not None:
        tools.append(VllmServe(asked.vllm, await _version_of(asked.vllm)))
    if asked.guidellm is not None:
        tools.append(GuideLlm(asked.guidellm, await _version_of(asked.guidellm)))
    return tools


async def _version_of(program: str) -> str:
    said = await output_of((found(program), "--version"))
    return said.split()[-1] if said else ""


@asynccontextmanager
async def _server(asked: Asked) -> AsyncIterator[str]:
    """The URL of the server to ask."""
    if asked.url is not None:
        yield asked.url.rstrip("/")
        return
    async with MockServer(script_for(Timing(tokens=asked.tokens))) as server:
        yield server.url
