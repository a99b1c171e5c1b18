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
    """Measure one part at a time: engine, KV handoff, gateway, text work, servers side by side."""
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


@bench.command(short_help="Chats to token ids.")
def render(
    model: Model = "smollm2",
    words: Annotated[int, typer.Option(metavar="N", min=1, help="Words of each chat.")] = 800,
    chats: Annotated[int, typer.Option(metavar="N", min=1, help="Chats a round.")] = 50,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="Rounds, in turns.")] = 7,
    as_json: Json = False,
) -> int:
    """Chats per second and core, beside transformers' own template and tokenizer."""
    return int(
        load("splitserve.cli.bench_render:run")(
            model=model, words=words, chats=chats, rounds=rounds, as_json=as_json
        )
    )


@bench.command(short_help="Token ids to answers.")
def derender(
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="[URL...]", help="Derender services; none: in this process."),
    ] = None,
    model: Model = "smollm2",
    tokens: Annotated[int, typer.Option(metavar="N", min=1000, help="Of the answer.")] = 32000,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="In this process.")] = 5,
    chunk: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens a call, at a URL.")] = 1,
    as_json: Json = False,
) -> int:
    """A long answer with reasoning and a tool call: what a token costs at its begin and its end.

    In this process beside plain detokenising; at services (ours or vLLM's), one call a chunk.
    """
    return int(
        load("splitserve.cli.bench_derender:run")(
            model=model,
            urls=urls or [],
            tokens=tokens,
            repeats=repeats,
            chunk=chunk,
            as_json=as_json,
        )
    )


@bench.command(short_help="Kills and freezes under load.")
def soak(
    model: Model = "smollm2",
    minutes: Annotated[float, typer.Option(metavar="M", min=0.1, help="How long.")] = 10,
    streams: Annotated[int, typer.Option(metavar="N", min=1, help="Answers at a time.")] = 50,
    seed: Annotated[int, typer.Option(metavar="N", help="Of requests and faults.")] = 0,
    as_json: Json = False,
) -> int:
    """Fake workers killed, frozen and restarted: fails unless nothing is lost, wrong or leaked."""
    return int(
        load("splitserve.cli.bench_soak:run")(
            model=model, minutes=minutes, streams=streams, seed=seed, as_json=as_json
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
