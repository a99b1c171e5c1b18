"""``splitserve serve``: a model over HTTP in one command."""

from typing import Annotated

import msgspec
import typer

from splitserve.cli import fake_options, options
from splitserve.errors import ConfigError
from splitserve.launch.topology import (
    FakeCosts,
    GatewayAsked,
    ModelAsked,
    Topology,
    WorkerGroup,
    checked,
)


def serve(
    model: options.Model,
    prefill: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Workers that compute prompts; needs --decode.",
            show_default=False,
        ),
    ] = None,
    decode: Annotated[
        int | None,
        typer.Option(
            metavar="M",
            help="Workers that write answers; needs --prefill.",
            show_default=False,
        ),
    ] = None,
    colocated: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Workers that do both, each for its own requests.",
            show_default="1 unless split",
        ),
    ] = None,
    port: options.Port = options.GATEWAY.port,
    host: options.Host = options.GATEWAY.host,
    device: options.Device = options.WORKER.device,
    tensor_parallel_size: options.TensorParallelSize = options.WORKER.tensor_parallel_size,
    dtype: options.Dtype = options.MODEL.dtype,
    max_model_len: options.MaxModelLen = options.MODEL.max_model_len,
    kv_cache_memory_bytes: options.KVCacheMemory = None,
    gpu_memory_utilization: options.GpuMemoryUtilization = options.WORKER.gpu_memory_utilization,
    max_num_seqs: options.MaxNumSeqs = options.WORKER.max_num_seqs,
    max_num_batched_tokens: options.MaxNumBatchedTokens = options.WORKER.max_num_batched_tokens,
    enable_prefix_caching: options.PrefixCaching = options.WORKER.enable_prefix_caching,
    kv_tier_memory_bytes: options.KVTierMemory = None,
    kv_tier_disk_path: options.KVTierDiskPath = None,
    kv_tier_disk_bytes: options.KVTierDisk = None,
    block_size: options.BlockSize = options.MODEL.block_size,
    connector: options.Connector = options.WORKER.connector,
    load_format: options.LoadFormat = options.MODEL.load_format,
    seed: options.Seed = options.MODEL.seed,
    served_model_name: options.ServedModelName = None,
    policy: options.PolicyName = options.GATEWAY.policy,
    request_timeout_s: options.RequestTimeout = options.GATEWAY.request_timeout_s,
    ttft_deadline_s: options.TtftDeadline = options.GATEWAY.ttft_deadline_s,
    max_queued: options.MaxQueued = options.GATEWAY.max_queued,
    tool_call_parser: options.ToolCallParser = options.GATEWAY.tool_call_parser,
    reasoning_parser: options.ReasoningParser = options.GATEWAY.reasoning_parser,
    api_key_file: options.ApiKeyFile = None,
    vllm_api_key_file: options.VllmApiKeyFile = None,
    enable_per_request_metrics: options.PerRequestMetrics = False,
    gateways: options.Gateways = options.GATEWAY.processes,
    log_dir: options.LogDir = None,
    engine: options.AnyEngine = options.WORKER.engine,
    fake_step_ms: fake_options.StepMs = options.WORKER.fake.step_ms,
    fake_prefill_us_per_token: fake_options.PrefillUs = options.WORKER.fake.prefill_us_per_token,
    fake_decode_us_per_seq: fake_options.DecodeUs = options.WORKER.fake.decode_us_per_seq,
    fake_num_blocks: fake_options.NumBlocks = options.WORKER.fake.num_blocks,
    fake_num_kv_heads: fake_options.NumKVHeads = options.WORKER.fake.num_kv_heads,
) -> int:
    """Serve MODEL through the OpenAI API, whole or split into prefill and decode workers.

    Without a shape it runs one worker. With --prefill and --decode, prompts are computed by one set
    of workers and answers written by another, so that a long prompt does not stall running answers.
    The machine's cores are shared out evenly among the workers; with --device cuda each takes a GPU
    of its own. SIGHUP restarts the workers one
    after another while the others serve. Ctrl-C stops everything.

    Examples: `splitserve serve smollm2`, `splitserve serve smollm2 --prefill 1 --decode 1`.
    """
    group = WorkerGroup(
        engine=engine,
        device=device,
        tensor_parallel_size=tensor_parallel_size,
        connector=connector,
        kv_cache_memory_bytes=options.memory_size("--kv-cache-memory-bytes", kv_cache_memory_bytes),
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        enable_prefix_caching=enable_prefix_caching,
        kv_tier_memory_bytes=options.size_or_zero("--kv-tier-memory-bytes", kv_tier_memory_bytes),
        kv_tier_disk_path=None if kv_tier_disk_path is None else str(kv_tier_disk_path),
        kv_tier_disk_bytes=options.size_or_zero("--kv-tier-disk-bytes", kv_tier_disk_bytes),
        fake=FakeCosts(
            step_ms=fake_step_ms,
            prefill_us_per_token=fake_prefill_us_per_token,
            decode_us_per_seq=fake_decode_us_per_seq,
            num_blocks=fake_num_blocks,
            num_kv_heads=fake_num_kv_heads,
        ),
    )
    topology = Topology(
        model=ModelAsked(
            name=model,
            served_model_name=served_model_name,
            dtype=dtype,
            max_model_len=max_model_len,
            load_format=load_format,
            seed=seed,
            block_size=block_size,
        ),
        gateway=GatewayAsked(
            host=host,
            port=port,
            policy=policy,
            request_timeout_s=request_timeout_s,
            ttft_deadline_s=ttft_deadline_s,
            max_queued=max_queued,
            tool_call_parser=tool_call_parser,
            reasoning_parser=reasoning_parser,
            api_key_file=None if api_key_file is None else str(api_key_file),
            processes=gateways,
            enable_per_request_metrics=enable_per_request_metrics,
            vllm_api_key_file=None if vllm_api_key_file is None else str(vllm_api_key_file),
        ),
        workers=shaped(group, prefill=prefill, decode=decode, colocated=colocated),
    )
    from splitserve.cli.foreground import run_in_foreground

    return run_in_foreground(checked(topology), log_dir)


def shaped(
    group: WorkerGroup, *, prefill: int | None, decode: int | None, colocated: int | None
) -> tuple[WorkerGroup, ...]:
    """Groups like ``group`` in the shape asked for. Raises ConfigError when it is no shape."""
    if (prefill is None) != (decode is None):
        raise ConfigError("--prefill and --decode go together: give both, or --colocated")
    if prefill is not None and colocated is not None:
        raise ConfigError("give either --prefill and --decode, or --colocated, not both")
    counts = {"colocated": colocated or (1 if colocated is None else 0)}
    if prefill is not None and decode is not None:
        counts = {"prefill": prefill, "decode": decode}
    for role, count in counts.items():
        if count < 1:
            raise ConfigError(f"--{role} must be at least 1 (got {count})")
    return tuple(
        msgspec.structs.replace(group, role=role, count=count) for role, count in counts.items()
    )
