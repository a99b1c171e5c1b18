"""What the person at the terminal sees: the plan, the start, what runs where, what changes."""

import json
import shlex
from collections.abc import Iterable, Sequence

from rich.console import Console

from splitserve.launch.keep import Supervised
from splitserve.launch.plan import ModelFacts, Plan, PlannedWorker
from splitserve.launch.sizes import format_size
from splitserve.lifecycle import StartFailed


def show_plan(console: Console, plan: Plan) -> None:
    """Every worker that will be started, and what the model's KV takes."""
    model, asked = plan.model, plan.topology.model
    rows = [
        (
            worker.process.name,
            worker.group.role,
            worker.group.engine,
            worker.device,
            _cores(worker.process.cores),
            *_kv_columns(worker, model),
        )
        for worker in plan.workers
    ]
    rows += [
        (worker.name, worker.role, "vllm", "runs already", "", worker.url, "")
        for worker in plan.attached
    ]
    header = ("worker", "role", "engine", "device", "cores", "KV memory", "KV tokens")
    _print_table(console, header, rows)
    print_line(
        console,
        f"{asked.served_as}: KV cache {format_size(model.kv_token_bytes)} a token, "
        f"{format_size(10_000 * model.kv_token_bytes)} for 10,000; "
        f"up to {asked.max_model_len or model.max_model_len:,} tokens a request\n",
    )


def show_running(console: Console, processes: Iterable[Supervised]) -> None:
    """What runs where."""
    rows = [
        (
            process.spec.name,
            process.spec.role,
            "" if process.pid is None else str(process.pid),
            _cores(process.spec.cores),
            process.state.value,
            _address(process),
        )
        for process in processes
    ]
    console.print()
    _print_table(console, ("name", "role", "pid", "cores", "state", "address"), rows)


def show_url(
    console: Console, url: str, model: str, elapsed_s: float, *, asks_for_keys: bool
) -> None:
    """The API's address, how long it took to get there, and a command that tries it."""
    key = '-H "Authorization: Bearer $KEY" ' if asks_for_keys else ""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    print_line(
        console, f"\nReady after {elapsed_s:.1f} s: OpenAI API at {url}/v1, Ctrl-C to stop. Try:\n"
    )
    print_line(
        console,
        f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' "
        f"{key}-d {shlex.quote(body)}\n",
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


def _print_table(console: Console, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns of plain text: whole at any width, and fit for grep."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print_line(console, "  ".join(cells).rstrip())


def _kv_columns(worker: PlannedWorker, model: ModelFacts) -> tuple[str, str]:
    """Memory and tokens of its pool."""
    if worker.kv_tokens is None:
        share = worker.group.gpu_memory_utilization
        return f"free of {share:.0%} of the GPU", "sized at start"
    return format_size(worker.kv_tokens * model.kv_token_bytes), f"{worker.kv_tokens:,}"


def _address(process: Supervised) -> str:
    """With the port that a process found free, where it was left to find one; of a vLLM instance
    only where it listens."""
    address = process.spec.address.partition("?")[0]
    port = process.facts.get("port")
    return address if port is None else f"{address.rpartition(':')[0]}:{port}"


def _cores(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores)) or "all"
