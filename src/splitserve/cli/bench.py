"""``splitserve bench``: small measurements of one part at a time."""

from typing import Annotated

import typer

from splitserve.cli import lab_extra, options
from splitserve.cli.errors import help_without_verb
from splitserve.launch.topology import ModelAsked, WorkerGroup
from splitserve.loading import load

bench = typer.Typer(rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
Model = Annotated[str, typer.Option("--model", metavar="MODEL", help="As for `splitserve serve`.")]
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="As for `splitserve serve`.")]
Urls = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="Load this running server instead; may be repeated."),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SHAPE",
        help="colocated, 2colocated, 1p1d, 2p2d, ...; may be repeated.",
        show_default="colocated and 1p1d",
    ),
]
Cases = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CASE",
        help="512/128x32: tokens in, out, streams. 8192/128@4: requests per second. May be "
        "repeated.",
        show_default="a set that suits the device",
    ),
]


@bench.callback(invoke_without_command=True)
def benchmarks(context: typer.Context) -> None:
    """Measure one part at a time: engine, KV handoff, gateway, text work, servers side by side."""
    help_without_verb(context)


@bench.command(short_help="The engine alone.")
def engine(
    model: ModelArgument = "smollm2",
    dtype: options.Dtype = "bfloat16",
    device: options.OneDevice = options.WORKER.device,
    load_format: options.LoadFormat = options.MODEL.load_format,
    threads: Annotated[int, typer.Option(metavar="N", help="Threads that compute.")] = 1,
    as_json: Json = False,
) -> int:
    """One engine alone: time to first token by prompt length, time between tokens by batch."""
    return int(
        load("splitserve.cli.bench_engine:run")(
            model=model,
            dtype=dtype,
            device=device,
            load_format=load_format,
            threads=threads,
            as_json=as_json,
        )
    )


@bench.command(short_help="A served model, as clients see it.")
def serve(
    model: ModelArgument = "smollm2",
    url: Urls = None,
    shape: Shapes = None,
    case: Cases = None,
    device: options.Device = options.WORKER.device,
    dtype: options.Dtype = options.MODEL.dtype,
    load_format: options.LoadFormat = options.MODEL.load_format,
    max_model_len: options.MaxModelLen = None,
    block_size: options.BlockSize = options.MODEL.block_size,
    kv_cache_memory_bytes: options.KVCacheMemory = None,
    gpu_memory_utilization: options.GpuMemoryUtilization = options.WORKER.gpu_memory_utilization,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    enable_prefix_caching: options.PrefixCaching = options.WORKER.enable_prefix_caching,
    log_dir: options.LogDir = None,
    as_json: Json = False,
) -> int:
    """MODEL in one shape after the other, under streams and Poisson arrivals: TTFT, ITL, tokens/s.

    Prompts are random token ids. One line per case; at a URL, MODEL only tells how many ids there
    are.
    """
    return int(
        load("splitserve.cli.bench_serve:run")(
            ModelAsked(
                name=model,
                dtype=dtype,
                load_format=load_format,
                max_model_len=max_model_len,
                block_size=block_size,
            ),
            WorkerGroup(
                device=device,
                kv_cache_memory_bytes=options.memory_size(
                    "--kv-cache-memory-bytes", kv_cache_memory_bytes
                ),
                gpu_memory_utilization=gpu_memory_utilization,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                enable_prefix_caching=enable_prefix_caching,
            ),
            shapes=shape or [],
            urls=url or [],
            cases=case or [],
            log_dir=log_dir,
            as_json=as_json,
        )
    )


@bench.command(short_help="KV from one worker to another.")
def handoff(
    model: Model = "smollm2",
    device: options.Device = "cpu",
    connector: options.Connector = "auto",
    tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Prompt length.")] = 1024,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Handoffs to time.")] = 20,
    as_json: Json = False,
) -> int:
    """A prompt's KV written into another process, layer by layer: bytes, rate, share of memcpy.

    With its blocks in one run, as they come to lie after much use, and scattered. Connectors tcp,
    nixl and mooncake beside a plain socket and the library alone, tcp with and without checksums.
    On cuda from the first GPU to the second, or within the only one.
    """
    return int(
        load("splitserve.cli.bench_handoff:run")(
            model=model,
            device=device,
            connector=connector,
            tokens=tokens,
            repeats=repeats,
            as_json=as_json,
        )
    )


@bench.command(short_help="A chat's turns over a split.")
def turns(
    model: Model = "smollm2",
    connector: options.Connector = options.WORKER.connector,
    conversations: Annotated[
        int, typer.Option(metavar="N", min=1, help="One after the other.")
    ] = 6,
    turns: Annotated[int, typer.Option(metavar="N", min=2, help="Of each conversation.")] = 10,
    turn_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="New in each turn.")] = 64,
    tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of each answer.")] = 32,
    as_json: Json = False,
) -> int:
    """Chats on one prefill and one decode worker: tokens computed and pulled, and TTFT, by turn.

    Each turn has a prompt of the same length beside it of which nothing is known: what it would
    cost without its history's KV. Ends with TTFT of the last turn over that of the second.
    """
    return int(
        load("splitserve.cli.bench_turns:run")(
            model,
            connector=connector,
            conversations=conversations,
            turns=turns,
            turn_tokens=turn_tokens,
            tokens=tokens,
            as_json=as_json,
        )
    )


@bench.command(short_help="What of the transfer shows.")
def exposed(
    model: Model = "smollm2",
    connectors: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="Connectors, the one that others are compared with first.",
            show_default="all that can be used here, shm first",
        ),
    ] = "",
    rounds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Of all connectors, there and back.")
    ] = 4,
    rate: Annotated[float, typer.Option(metavar="R", min=0.01, help="Requests a second.")] = 1.0,
    seconds: Annotated[
        float, typer.Option(metavar="S", min=1, help="How long requests keep coming.")
    ] = 30.0,
    prompt_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Of each prompt.")] = 512,
    tokens: Annotated[int, typer.Option(metavar="N", min=2, help="Tokens of each answer.")] = 32,
    seed: Annotated[int, typer.Option(metavar="N", help="Of prompts and arrivals.")] = 0,
    as_json: Json = False,
) -> int:
    """A split under Poisson arrivals, by connector: how long KV came after the first token.

    TTFT and ITL beside it, and the ratios to the first connector in the same round.
    """
    return int(
        load("splitserve.cli.bench_exposed:run")(
            model,
            connectors=connectors.split(",") if connectors else [],
            rounds=rounds,
            rate=rate,
            seconds=seconds,
            prompt_tokens=prompt_tokens,
            tokens=tokens,
            seed=seed,
            as_json=as_json,
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


@bench.command(short_help="The lab's own error rates.")
def lab(
    studies: Annotated[
        int, typer.Option(metavar="N", min=20, help="Simulated studies of each kind.")
    ] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the simulation.")] = 1,
    as_json: Json = False,
) -> int:
    """How often the lab's verdicts are wrong on simulated studies, and how exact its client is.

    Fails where a limit is missed. The client's part needs a machine that does nothing else.
    """
    lab_extra.require()
    return int(load("splitserve.cli.bench_lab:run")(studies=studies, seed=seed, as_json=as_json))


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


@bench.command(short_help="The lab's client beside others.")
def clients(
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A running server; none: one whose times are scripted."),
    ] = None,
    model: Model = "smollm2",
    vllm: Annotated[
        str | None, typer.Option(metavar="PROGRAM", help="vLLM, for its `vllm bench serve`.")
    ] = None,
    guidellm: Annotated[str | None, typer.Option(metavar="PROGRAM", help="GuideLLM.")] = None,
    requests: Annotated[int, typer.Option(metavar="N", min=1, help="Of each client.")] = 40,
    rate: Annotated[float, typer.Option(metavar="R", min=0.01, help="Requests a second.")] = 2.0,
    words: Annotated[int, typer.Option(metavar="N", min=2, help="Words of each chat.")] = 110,
    tokens: Annotated[int, typer.Option(metavar="N", min=2, help="Tokens of each answer.")] = 32,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the chats.")] = 0,
    as_json: Json = False,
) -> int:
    """The lab's load client and others on one server: what each says, and what passed the wire.

    Each runs through a relay that notes when bytes passed, on the same chats at equal distances.
    """
    return int(
        load("splitserve.cli.bench_clients:run")(
            url=url,
            model=model,
            vllm=vllm,
            guidellm=guidellm,
            requests=requests,
            rate=rate,
            words=words,
            tokens=tokens,
            seed=seed,
            as_json=as_json,
        )
    )
