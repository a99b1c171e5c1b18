"""The worker process: engine and connectors joined, served until drained or stopped."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import uvloop

from splitserve.clock import monotonic
from splitserve.engine.api import Engine, ModelInfo
from splitserve.engine.config import EngineConfig, SchedulerConfig
from splitserve.engine.device import Sizes, parse_device, sizes_on
from splitserve.engine.fake import FakeConfig
from splitserve.engine.registry import create_engine
from splitserve.errors import UnavailableError
from splitserve.ids import WorkerId, new_incarnation
from splitserve.lifecycle import StatusPipe, StopSignals, reporting_failure
from splitserve.loading import load
from splitserve.modelstore.resolve import resolve
from splitserve.protocol.address import TcpAddress, is_loopback, parse_address
from splitserve.protocol.control import PROTOCOL_VERSION
from splitserve.protocol.gate import Gate
from splitserve.protocol.memory import KVLayout, MemoryRegion
from splitserve.roles.config import WorkerConfig
from splitserve.roles.liveness import PidWatch
from splitserve.roles.loop import Outbox
from splitserve.roles.server import WorkerServer
from splitserve.roles.tiering import Tiering
from splitserve.roles.worker import Worker, WorkerFacts
from splitserve.tier.copier import BlockCopier, HostBlockCopier, ShardedBlockCopier
from splitserve.tier.opening import Tier, open_tier
from splitserve.transfer.hosts import whereabouts
from splitserve.transfer.options import NetworkOptions
from splitserve.transfer.registry import choose_connector, create_connector
from splitserve.transfer.sharded import ShardedConnector

log = logging.getLogger(__name__)

EXIT_ENGINE_FAILED = 70
"""The engine broke (EX_SOFTWARE): the supervisor restarts, the router retries elsewhere."""

FAKE_MAX_MODEL_LEN = 8192
FAKE_TOKEN_LOW = 400
FAKE_TOKEN_HIGH = 1400
"""The fake engine answers with ids that are whole words in common byte-level vocabularies."""

SWITCH_INTERVAL_S = 0.0005
"""How long the engine's thread may keep the socket thread waiting for the interpreter."""


def run(config: WorkerConfig, status: StatusPipe) -> int:
    """Serves until SIGTERM or Ctrl-C (drains first; a second one ends it now). Returns the exit
    code.

    Raises ConfigError or UnavailableError when it cannot start; ``status`` has been told then.
    """
    with reporting_failure(status):
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # Before an engine is made: that may take long.
        gate = Gate.load(config.gate, os.environ)
        gate.check_listen(parse_address(config.listen))
        engine = create_engine(config.engine, engine_config(config))
        tier = _tier(config, engine)
        connector = _connector(config, engine, gate)
    # What lives now lives for ever: the collector need not look at it between steps.
    gc.collect()
    gc.freeze()
    try:
        build = _builder(config, engine, connector, tier)
        return uvloop.run(_serve(config, gate, build, status))
    finally:
        close_parts(connector, tier, engine)


def close_parts(connector: ShardedConnector, tier: Tier | None, engine: Engine) -> None:
    """In this order: threads of the first two touch the engine's pool until they are closed."""
    connector.close()
    if tier is not None:
        try:
            tier.close()
        except UnavailableError as error:
            # The pool ends with the process then.
            log.error("%s", error)
            return
    engine.close()


async def _serve(
    config: WorkerConfig, gate: Gate, build: Callable[[Outbox], Worker], status: StatusPipe
) -> int:
    loop = asyncio.get_running_loop()
    server = WorkerServer(
        build, config.listen, monotonic, status.ready, drain_grace_s=config.drain_grace_s, gate=gate
    )

    def stop() -> None:
        loop.call_soon_threadsafe(server.drain)

    def abandon() -> None:
        loop.call_soon_threadsafe(server.stop)

    with StopSignals(stop, abandon, again=abandon) as signals, reporting_failure(status):
        try:
            await server.serve()
        except Exception:
            log.exception("the engine failed; this worker ends")
            return EXIT_ENGINE_FAILED
        return signals.exit_code


def _tier(config: WorkerConfig, engine: Engine) -> Tier | None:
    """Open over the engine's pools, where it is asked for. Raises ConfigError, UnavailableError."""
    info, regions = engine.describe(), engine.regions()
    return open_tier(
        config.kv_tier, info.content_hash, info.layout, lambda: _copier(regions, info.layout)
    )


def _copier(regions: Sequence[MemoryRegion], layout: KVLayout) -> BlockCopier:
    """The tier's way to the engine's pools."""
    shares = zip(regions, layout.shards(len(regions)), strict=True)
    shards = [_shard_copier(region, share) for region, share in shares]
    return shards[0] if len(shards) == 1 else ShardedBlockCopier(shards)


def _shard_copier(region: MemoryRegion, layout: KVLayout) -> BlockCopier:
    """To one pool, wherever that lies."""
    if region.device == "cpu":
        return HostBlockCopier(region, layout)
    copier: BlockCopier = load("splitserve.transfer.cuda.block_copier:CudaBlockCopier")(
        region, layout
    )
    return copier


def _connector(config: WorkerConfig, engine: Engine, gate: Gate) -> ShardedConnector:
    """Open over the engine's pools. Raises ConfigError."""
    address = parse_address(config.listen)
    network = NetworkOptions(tls=gate.tls)
    if isinstance(address, TcpAddress):
        network = replace(network, host=address.host)
    # TLS authenticates every record, and what stays on this host meets no wire that could change
    # it: sums of our own would cost as much as the copy.
    checksums = gate.tls is None and not is_loopback(network.host)
    network = replace(network, checksums=checksums)
    connector = ShardedConnector(lambda: create_connector(_connector_name(config), network))
    connector.open(engine.regions(), engine.describe().layout)
    return connector


def _builder(
    config: WorkerConfig, engine: Engine, connector: ShardedConnector, tier: Tier | None
) -> Callable[[Outbox], Worker]:
    """The server calls the result with its outbox."""
    info = engine.describe()
    facts = WorkerFacts(
        worker=WorkerId(config.name),
        incarnation=new_incarnation(),
        role=config.role,
        address=config.listen,
        pid=os.getpid(),
        connector=_connector_name(config),
        fingerprint={**_fingerprint(info), **_model_fingerprint(config, info)},
        max_num_seqs=_sizes(config).max_num_seqs,
        whereabouts=whereabouts(),
    )
    tiering = None if tier is None else Tiering(engine, tier.thread, monotonic)
    return lambda outbox: Worker(engine, connector, outbox, facts, monotonic, PidWatch, tiering)


def _fingerprint(info: ModelInfo) -> Mapping[str, str]:
    """What must be equal in two workers that hand KV to each other."""
    layout = info.layout
    # Block sizes and shares of the heads may differ: the transfer plan sees to that.
    shape = (layout.num_layers, layout.model_kv_heads, layout.head_dim)
    return {
        "protocol": str(PROTOCOL_VERSION),
        "dtype": info.dtype,
        "kv_layout": f"{layout.dtype} " + "x".join(map(str, shape)),
    }


def _model_fingerprint(config: WorkerConfig, info: ModelInfo) -> Mapping[str, str]:
    """What must be equal in a gateway too. The fake engine answers for any model."""
    if config.engine == "fake":
        return {"fake": info.content_hash}
    folder = resolve(config.model)
    # A gateway knows the weights on disk, not those that are made up.
    weights = "made_up_weights" if config.load_format == "dummy" else "weights"
    return {
        weights: info.content_hash,
        "tokenizer": folder.tokenizer_hash(),
        "template": folder.template_hash(),
    }


def _connector_name(config: WorkerConfig) -> str:
    return choose_connector(config.device) if config.connector == "auto" else config.connector


def _sizes(config: WorkerConfig) -> Sizes:
    return sizes_on(
        parse_device(config.device).kind,
        config.max_num_seqs,
        config.max_num_batched_tokens,
        config.kv_cache_memory_bytes,
    )


def engine_config(config: WorkerConfig) -> EngineConfig | FakeConfig:
    """For ``create_engine``: what was asked for, with the device's sizes where nothing was."""
    device, sizes = parse_device(config.device), _sizes(config)
    scheduler = SchedulerConfig(
        max_num_seqs=sizes.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    if config.engine == "fake":
        folder = resolve(config.model)
        return FakeConfig(
            model=config.model,
            vocab_size=int(folder.config()["vocab_size"]),
            tokenizer=folder.path / "tokenizer.json",
            token_low=FAKE_TOKEN_LOW,
            token_high=FAKE_TOKEN_HIGH,
            max_model_len=config.max_model_len or FAKE_MAX_MODEL_LEN,
            block_size=config.block_size,
            num_blocks=config.fake_num_blocks,
            num_kv_heads=config.fake_num_kv_heads,
            tensor_parallel_size=config.tensor_parallel_size,
            step_s=config.fake_step_s,
            prefill_token_s=config.fake_prefill_s_per_token,
            decode_seq_s=config.fake_decode_s_per_seq,
            scheduler=scheduler,
        )
    return EngineConfig(
        model=config.model,
        dtype=config.dtype,
        device=str(device),
        block_size=config.block_size,
        kv_cache_memory_bytes=sizes.kv_cache_memory_bytes,
        gpu_memory_utilization=config.gpu_memory_utilization,
        tensor_parallel_size=config.tensor_parallel_size,
        max_model_len=config.max_model_len,
        threads=len(config.cores) or len(os.sched_getaffinity(0)),
        load_format=config.load_format,
        seed=config.seed,
        scheduler=scheduler,
    )
