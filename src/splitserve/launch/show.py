"""What the person at the terminal sees: the plan, the start, what runs where, what changes."""

import json
import shlex
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from splitserve.launch.keep import Supervised
from splitserve.launch.plan import Plan
from splitserve.launch.sizes import format_size
from splitserve.lifecycle import StartFailed


def show_plan(console: Console, plan: Plan) -> None:
    """Every process that will be started, and what the model's KV takes."""
    model, asked = plan.model, plan.topology.model
    table = _table("worker", "role", "engine", "device", "cores", "KV memory", "KV tokens")
    for worker in plan.workers:
        group = worker.group
        kv_bytes = worker.kv_tokens * model.kv_token_bytes
        table.add_row(
            worker.process.name,
            group.role,
            group.engine,
            group.device,
            _cores(worker.process.cores),
            format_size(kv_bytes),
            f"{worker.kv_tokens:,}",
        )
    console.print(table)
    console.print(
        f"{asked.served_as}: KV cache {format_size(model.kv_token_bytes)} a token, "
        f"{format_size(10_000 * model.kv_token_bytes)} for 10,000; "
        f"up to {asked.max_model_len or model.max_model_len:,} tokens a request"
    )


def show_running(console: Console, processes: Iterable[Supervised]) -> None:
    """What runs where."""
    table = _table("name", "role", "pid", "cores", "address", "state")
    for process in processes:
        spec = process.spec
        pid = "" if process.pid is None else str(process.pid)
        table.add_row(
            spec.name, spec.role, pid, _cores(spec.cores), spec.address, process.state.value
        )
    console.print(table)


def show_url(console: Console, url: str, model: str, elapsed_s: float) -> None:
    """The API's address, how long it took to get there, and a command that tries it."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    print_line(
        console, f"\nReady after {elapsed_s:.1f} s: OpenAI API at {url}/v1, Ctrl-C to stop. Try:\n"
    )
    print_line(
        console,
        f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' "
        f"-d {shlex.quote(body)}\n",
    )


def show_warnings(console: Console, warnings: Sequence[str]) -> None:
    for warning in warnings:
        print_line(console, f"warning: {warning}")


def show_log(console: Console, error: StartFailed) -> None:
    """The end of the log of a process that did not start."""
    if error.log:
        print_line(console, f"last lines of {error.log_path}:")
        for line in error.log:
            print_line(console, f"  {line}")


def print_line(console: Console, text: str) -> None:
    """``text`` as it is: no line breaks put in (it may be copied), no markup found in it."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _cores(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores)) or "all"
