"""``splitserve bench``: small measurements of one part at a time."""

from typing import Annotated

import typer

from splitserve.cli import options
from splitserve.cli.errors import help_without_verb
from splitserve.loading import load

bench = typer.Typer(rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
Model = Annotated[str, typer.Option("--model", metavar="MODEL", help="As for `splitserve serve`.")]


@bench.callback(invoke_without_command=True)
def benchmarks(context: typer.Context) -> None:
    """Measure one part at a time: the engine, a KV handoff, the gateway, servers side by side."""
    help_without_verb(context)


@bench.command(short_help="The engine alone.")
def engine(
    model: Model = "smollm2",
    dtype: options.Dtype = "bfloat16",
    threads: Annotated[int, typer.Option(metavar="N", help="Threads that compute.")] = 1,
    as_json: Json = False,
) -> int:
    """One engine alone: time to first token by prompt length, time between tokens by batch."""
    return int(
        load("splitserve.cli.bench_engine:run")(
            model=model, dtype=dtype, threads=threads, as_json=as_json
        )
    )


@bench.command(short_help="KV from one worker to another.")
def handoff(
    model: Model = "smollm2",
    connector: options.Connector = options.WORKER.connector,
    tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Prompt length.")] = 1024,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Handoffs to time.")] = 20,
    as_json: Json = False,
) -> int:
    """A prompt's KV written into another process, layer by layer: bytes, rate, share of memcpy."""
    return int(
        load("splitserve.cli.bench_handoff:run")(
            model=model, connector=connector, tokens=tokens, repeats=repeats, as_json=as_json
        )
    )


@bench.command(short_help="What the gateway adds.")
def gateway(
    model: Model = "smollm2",
    streams: Annotated[int, typer.Option(metavar="N", min=1, help="Answers at a time.")] = 64,
    tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of each answer.")] = 500,
    rate: Annotated[
        float, typer.Option(metavar="R", min=0.1, help="Tokens per second of each answer.")
    ] = 50.0,
    as_json: Json = False,
) -> int:
    """The gateway before a worker without an engine: latency added and CPU time per token."""
    return int(
        load("splitserve.cli.bench_gateway:run")(
            model=model, streams=streams, tokens=tokens, rate=rate, as_json=as_json
        )
    )


@bench.command(short_help="Running servers, side by side.")
def endpoints(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="OpenAI-compatible servers.")],
    vocab_size: Annotated[
        int, typer.Option(metavar="N", min=200, help="Prompts use ids below this.")
    ] = 48000,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Turns of each server.")] = 5,
    as_json: Json = False,
) -> int:
    """ITL at 1 and 8 streams, TTFT at 1024 and 2000 tokens, of servers that take turns.

    All must serve the same model. Ratios are the first server's readings over each other one's.
    """
    return int(
        load("splitserve.cli.bench_endpoints:run")(
            urls=urls, vocab_size=vocab_size, repeats=repeats, as_json=as_json
        )
    )
