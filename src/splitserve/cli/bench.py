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
    """Measure one part at a time: the engine, a KV handoff, the gateway."""
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
    tokens: Annotated[int, typer.Option(metavar="N", help="Prompt length.")] = 1024,
    repeats: Annotated[int, typer.Option(metavar="N", help="Handoffs to time.")] = 20,
    as_json: Json = False,
) -> int:
    """A prompt's KV moved from one worker to another: bytes, rate, time exposed after prefill."""
    return int(
        load("splitserve.cli.bench_handoff:run")(
            model=model, tokens=tokens, repeats=repeats, as_json=as_json
        )
    )


@bench.command(short_help="What the gateway adds.")
def gateway(
    streams: Annotated[int, typer.Option(metavar="N", help="Answers at a time.")] = 64,
    tokens: Annotated[int, typer.Option(metavar="N", help="Tokens of each answer.")] = 256,
    rate: Annotated[
        float, typer.Option(metavar="R", help="Tokens per second of each answer.")
    ] = 50.0,
    as_json: Json = False,
) -> int:
    """The gateway over fake engines: latency it adds and CPU time per streamed token."""
    return int(
        load("splitserve.cli.bench_gateway:run")(
            streams=streams, tokens=tokens, rate=rate, as_json=as_json
        )
    )
