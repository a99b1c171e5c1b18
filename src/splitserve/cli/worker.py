"""``splitserve worker``: one engine with its connector, as a process of its own."""

import sys
from typing import Annotated

import typer

from splitserve.cli import fake_options, options
from splitserve.engine.device import parse_device
from splitserve.errors import ConfigError
from splitserve.launch.checks import check_value, one_of
from splitserve.launch.topology import (
    CONNECTORS,
    DTYPES,
    ENGINES,
    LOAD_FORMATS,
    ROLES,
    SHARE_RULE,
    check_fit,
    check_shards,
    check_tier,
)
from splitserve.lifecycle import StatusPipe, end_with_parent, pin_to_cores, reporting_failure
from splitserve.loading import load
from splitserve.logs import LEVELS, configure
from splitserve.protocol.address import TcpAddress, is_wildcard, parse_address
from splitserve.protocol.gate import GateFiles
from splitserve.roles.config import WorkerConfig


def worker(
    model: options.Model,
    role: Annotated[
        str,
        typer.Option(
            metavar="|".join(ROLES), help="What the router sends here.", show_default=False
        ),
    ],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Unique in the deployment.", show_default=False)
    ],
    listen: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="unix:/path or tcp:host:port.", show_default=False),
    ],
    engine: options.Engine = options.WORKER.engine,
    connector: options.Connector = options.WORKER.connector,
    dtype: options.Dtype = options.MODEL.dtype,
    device: options.OneDevice = options.WORKER.device,
    tensor_parallel_size: options.TensorParallelSize = options.WORKER.tensor_parallel_size,
    max_model_len: options.MaxModelLen = options.MODEL.max_model_len,
    block_size: options.BlockSize = options.MODEL.block_size,
    kv_cache_memory_bytes: options.KVCacheMemory = None,
    gpu_memory_utilization: options.GpuMemoryUtilization = options.WORKER.gpu_memory_utilization,
    max_num_seqs: options.MaxNumSeqs = options.WORKER.max_num_seqs,
    max_num_batched_tokens: options.MaxNumBatchedTokens = options.WORKER.max_num_batched_tokens,
    enable_prefix_caching: options.PrefixCaching = options.WORKER.enable_prefix_caching,
    kv_tier_memory_bytes: options.KVTierMemory = None,
    kv_tier_disk_path: options.KVTierDiskPath = None,
    kv_tier_disk_bytes: options.KVTierDisk = None,
    cores: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Run on these cores only, one thread each: 0,1 or 0-3.",
            show_default="all, threads left to the system",
        ),
    ] = "",
    drain_grace_s: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="After SIGTERM, how long running requests may go on here; what is left then goes "
            "on at another worker. A second SIGTERM ends it now.",
        ),
    ] = options.WORKER.drain_grace_s,
    load_format: options.LoadFormat = options.MODEL.load_format,
    seed: options.Seed = options.MODEL.seed,
    fake_step_ms: fake_options.StepMs = options.WORKER.fake.step_ms,
    fake_prefill_us_per_token: fake_options.PrefillUs = options.WORKER.fake.prefill_us_per_token,
    fake_decode_us_per_seq: fake_options.DecodeUs = options.WORKER.fake.decode_us_per_seq,
    fake_num_blocks: fake_options.NumBlocks = options.WORKER.fake.num_blocks,
    fake_num_kv_heads: fake_options.NumKVHeads = options.WORKER.fake.num_kv_heads,
    secret_file: options.SecretFile = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    tls_ca: options.TlsCa = None,
    log_level: options.LogLevel = "info",
    status_fd: options.StatusFd = None,
    parent_pid: options.ParentPid = None,
) -> int:
    """Run one worker: an engine that computes and a connector that moves its KV.

    `serve` and `up` start workers by themselves. Start one by hand to place it on another machine
    or under another supervisor, and name its address to `splitserve gateway`.
    """
    status = StatusPipe(status_fd)
    with reporting_failure(status):
        if parent_pid is not None:
            end_with_parent(parent_pid)
        one_of("--log-level", log_level, LEVELS)
        configure(name, log_level, sys.stderr)
        config = WorkerConfig(
            model=model,
            role=role,
            name=name,
            listen=listen,
            engine=engine,
            connector=connector,
            dtype=dtype,
            device=device,
            tensor_parallel_size=tensor_parallel_size,
            max_model_len=max_model_len,
            block_size=block_size,
            kv_cache_memory_bytes=options.memory_size(
                "--kv-cache-memory-bytes", kv_cache_memory_bytes
            ),
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enable_prefix_caching=enable_prefix_caching,
            kv_tier_memory_bytes=options.size_or_zero(
                "--kv-tier-memory-bytes", kv_tier_memory_bytes
            ),
            kv_tier_disk_path=kv_tier_disk_path,
            kv_tier_disk_bytes=options.size_or_zero("--kv-tier-disk-bytes", kv_tier_disk_bytes),
            cores=options.core_list("--cores", cores),
            drain_grace_s=drain_grace_s,
            load_format=load_format,
            seed=seed,
            fake_step_s=fake_step_ms / 1e3,
            fake_prefill_s_per_token=fake_prefill_us_per_token / 1e6,
            fake_decode_s_per_seq=fake_decode_us_per_seq / 1e6,
            fake_num_blocks=fake_num_blocks,
            fake_num_kv_heads=fake_num_kv_heads,
            gate=GateFiles(secret_file, tls_cert, tls_key, tls_ca),
        )
        check_worker(config)
        # Before anything is imported that starts threads.
        pin_to_cores(config.cores)
        return int(load("splitserve.processes.worker:run")(config, status))


def check_worker(config: WorkerConfig) -> None:
    """Raises ConfigError naming the first flag that is wrong by itself."""
    one_of("--role", config.role, ROLES)
    one_of("--engine", config.engine, ENGINES)
    one_of("--connector", config.connector, CONNECTORS)
    one_of("--dtype", config.dtype, DTYPES)
    one_of("--load-format", config.load_format, LOAD_FORMATS)
    kind = parse_device(config.device).kind
    check_fit("--", config.engine, kind, config.connector)
    check_shards("--tensor-parallel-size", config.tensor_parallel_size, kind)
    caching = config.enable_prefix_caching
    check_tier(lambda key: f"--{key.replace('_', '-')}", config.kv_tier, caching)
    address = parse_address(config.listen)
    if isinstance(address, TcpAddress) and is_wildcard(address.host):
        raise ConfigError(
            f"--listen {config.listen}: peers are told this address and would reach themselves; "
            "give the one under which they reach this machine"
        )
    check_value("--name", config.name, bool(config.name), "must not be empty")
    share = config.gpu_memory_utilization
    check_value("--gpu-memory-utilization", share, 0 < share <= 1, SHARE_RULE)
    for flag, value in (
        ("--max-model-len", config.max_model_len),
        ("--block-size", config.block_size),
        ("--kv-cache-memory-bytes", config.kv_cache_memory_bytes),
        ("--tensor-parallel-size", config.tensor_parallel_size),
        ("--max-num-seqs", config.max_num_seqs),
        ("--max-num-batched-tokens", config.max_num_batched_tokens),
        ("--fake-num-blocks", config.fake_num_blocks),
        ("--fake-num-kv-heads", config.fake_num_kv_heads),
    ):
        check_value(flag, value, value is None or value > 0, "must be positive")
    for flag, seconds in (
        ("--fake-step-ms", config.fake_step_s),
        ("--fake-prefill-us-per-token", config.fake_prefill_s_per_token),
        ("--fake-decode-us-per-seq", config.fake_decode_s_per_seq),
        ("--drain-grace-s", config.drain_grace_s),
    ):
        check_value(flag, seconds, seconds >= 0, "must not be negative")
