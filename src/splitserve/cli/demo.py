"""``splitserve demo``: a chat answered by two workers, what the split costs and brings, a study."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Final

import aiohttp
from rich.console import Console
from rich.table import Table

from splitserve.bench.compare import Outcome, Watcher, measure_shapes
from splitserve.bench.load import LoadPlan
from splitserve.cli.demo_study import run_study
from splitserve.cli.pull import RichProgress
from splitserve.errors import UnavailableError
from splitserve.modelstore.resolve import resolve

MODEL: Final = "smollm2"
QUESTION: Final = "What is the capital of France, and what is it known for?"
PROMPT_TOKENS: Final = 1024
MAX_TOKENS: Final = 64
LESS_IS_WORTH: Final = 0.9
"""Below this ratio of p99 gaps we say that the split cut them."""


def run(seconds: float, rate: float) -> int:
    """``rate`` 0 picks one from what this machine can do. Returns the exit code."""
    console = Console()
    with RichProgress(Console(stderr=True)) as progress:
        folder = resolve(MODEL, progress=progress)
    vocab_size = int(folder.config()["vocab_size"])
    plan = LoadPlan(rate, seconds, PROMPT_TOKENS, MAX_TOKENS, vocab_size)
    watcher = _ConsoleWatcher(console)

    async def talk(url: str) -> None:
        await _chat(url, console)

    plan, split, whole = asyncio.run(measure_shapes(MODEL, plan, watcher, talk))
    watcher.end()
    show(console, plan, split, whole)
    failed = 1 if split.summary.errors or whole.summary.errors else 0
    return run_study(console) or failed


class _ConsoleWatcher(Watcher):
    """One line a stage; on a terminal, a counter that is written over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._counting = False

    def stage(self, text: str) -> None:
        self.end()
        self._console.print(f"[bold]*[/bold] {text}", highlight=False)

    def progress(self, finished: int, total: int, elapsed_s: float) -> None:
        if self._console.is_terminal:
            self._counting = True
            sys.stdout.write(f"\r  {finished} of {total} answers, {elapsed_s:.0f} s ")
            sys.stdout.flush()
        elif finished % 10 == 0 or finished == total:
            print(f"  {finished} of {total} answers, {elapsed_s:.0f} s", flush=True)

    def end(self) -> None:
        if self._counting:
            sys.stdout.write("\n")
            self._counting = False


async def _chat(url: str, console: Console) -> None:
    """Streams one answer to the terminal: prompt in one process, answer in another."""
    console.print(f"\n[bold]you:[/bold] {QUESTION}\n[bold]model:[/bold] ", end="", highlight=False)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 96,
        "temperature": 0,
        "stream": True,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/v1/chat/completions", json=body) as answer,
    ):
        if answer.status != 200:
            raise UnavailableError(f"the chat failed: {await answer.text()}")
        async for line in answer.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                for choice in event.get("choices", ()):
                    sys.stdout.write(choice["delta"].get("content") or "")
                    sys.stdout.flush()
    console.print("\n")


def show(console: Console, plan: LoadPlan, split: Outcome, whole: Outcome) -> None:
    """Both shapes side by side, and in words what the split brought and cost."""
    table = Table(
        title=f"{plan.rate} requests/s for {plan.duration_s:.0f} s, "
        f"{plan.prompt_tokens} tokens in, {plan.max_tokens} out, "
        f"{split.summary.requests} requests, the same for both"
    )
    table.add_column("")
    for outcome in (whole, split):
        table.add_column(outcome.shape, justify="right")
    for name, value in ROWS:
        table.add_row(name, value(whole), value(split))
    console.print(table)
    for line in conclusions(split, whole):
        console.print(line, highlight=False)


def conclusions(split: Outcome, whole: Outcome) -> list[str]:
    """What the numbers say, each on its own; no score."""
    ours, theirs = split.summary, whole.summary
    lines = []
    for outcome in (whole, split):
        if outcome.summary.errors:
            first = outcome.summary.first_error
            lines.append(f"{outcome.shape}: {outcome.summary.errors} requests failed ({first}).")
    if ours.itl_p99 < LESS_IS_WORTH * theirs.itl_p99:
        lines.append(
            f"The split cut p99 ITL from {_ms(theirs.itl_p99)} to {_ms(ours.itl_p99)} "
            f"({theirs.itl_p99 / ours.itl_p99:.1f} times)."
        )
    else:
        lines.append(
            f"The split did not pay on this load: p99 ITL is {_ms(ours.itl_p99)} split and "
            f"{_ms(theirs.itl_p99)} colocated."
        )
    change = "costs" if ours.ttft_p50 > theirs.ttft_p50 else "saves"
    lines.append(
        f"It {change} first tokens: p50 TTFT {_ms(theirs.ttft_p50)} colocated, "
        f"{_ms(ours.ttft_p50)} split; p99 {_ms(theirs.ttft_p99)} and {_ms(ours.ttft_p99)}."
    )
    lines.append("One run each on one machine: enough to see the effect, not to decide by.")
    return lines


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"


def _moved(outcome: Outcome) -> str:
    if not outcome.handoffs.count:
        return "-"
    return f"{outcome.handoffs.kv_bytes / 1e6:.0f} MB in {outcome.handoffs.count:.0f}"


def _exposed(outcome: Outcome) -> str:
    return _ms(outcome.handoffs.mean_exposed_s) if outcome.handoffs.count else "-"


ROWS: Final[list[tuple[str, Callable[[Outcome], str]]]] = [
    ("TTFT idle", lambda o: _ms(o.idle_ttft_s)),
    ("TTFT p50", lambda o: _ms(o.summary.ttft_p50)),
    ("TTFT p99", lambda o: _ms(o.summary.ttft_p99)),
    ("ITL p50", lambda o: _ms(o.summary.itl_p50)),
    ("ITL p99", lambda o: _ms(o.summary.itl_p99)),
    ("worst gap", lambda o: _ms(o.summary.worst_gap)),
    ("first gap p50", lambda o: _ms(o.summary.first_gap_p50)),
    ("tokens", lambda o: str(o.summary.tokens)),
    ("errors", lambda o: str(o.summary.errors)),
    ("KV moved", _moved),
    ("exposed transfer, mean", _exposed),
]
