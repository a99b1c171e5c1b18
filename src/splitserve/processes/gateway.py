"""The gateway process: frontend and router joined, served over HTTP until stopped."""

import os
import socket
from collections.abc import Mapping

import uvloop
from prometheus_client import CollectorRegistry

from splitserve.frontend.access import KeyRing
from splitserve.frontend.app import create_app
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.model import ServedModel
from splitserve.frontend.scale_out.tier import TextTier
from splitserve.ids import new_incarnation
from splitserve.lifecycle import StatusPipe, StopSignals, reporting_failure
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.resolve import resolve
from splitserve.processes.apart import NamedApart
from splitserve.processes.config import GatewayConfig
from splitserve.processes.gateway_metrics import RouterMetrics, WorkerMetrics
from splitserve.processes.http import HttpServer, listen
from splitserve.processes.text_tier import new_tier
from splitserve.processes.vllm_metrics import VllmMetrics
from splitserve.processes.vllm_workers import connect_with, vllm_api_key, vllm_workers
from splitserve.protocol.control import PROTOCOL_VERSION
from splitserve.protocol.gate import Gate
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router
from splitserve.router.workers.vllm.settings import VllmWorker


def run(config: GatewayConfig, status: StatusPipe) -> int:
    """Serves until SIGTERM or Ctrl-C. Returns the exit code.

    Raises ConfigError or UnavailableError when it cannot start; ``status`` has been told then.
    """
    with reporting_failure(status):
        folder = resolve(config.model)
        model = ServedModel.load(
            folder,
            name=config.served_model_name,
            max_model_len=config.max_model_len,
            tool_call_parser=config.tool_call_parser,
            reasoning_parser=config.reasoning_parser,
        )
        limits = FrontendConfig(enable_per_request_metrics=config.enable_per_request_metrics)
        tier = new_tier(folder, model, limits, config.state_key_file)
        gate = Gate.load(config.gate, os.environ)
        access = KeyRing.load(config.api_key_file, os.environ)
        vllm = vllm_workers(config.workers, vllm_api_key(config.vllm_api_key_file, os.environ))
        listener = listen(config.host, config.port, reuse_port=config.reuse_port)
    return uvloop.run(_serve(config, folder, tier, access, gate, vllm, listener, status))


async def _serve(
    config: GatewayConfig,
    folder: ModelFolder,
    tier: TextTier,
    access: KeyRing | None,
    gate: Gate,
    vllm: Mapping[str, VllmWorker],
    listener: socket.socket,
    status: StatusPipe,
) -> int:
    metrics = RouterMetrics()
    engines = engine_fingerprint(folder)
    limits = RouterConfig(
        policy=config.policy,
        request_timeout_s=config.request_timeout_s,
        ttft_deadline_s=config.ttft_deadline_s,
        max_queued=config.max_queued,
    )
    name, between_vllm = f"gateway-{new_incarnation()}", VllmMetrics()
    router = Router(
        limits,
        config.workers,
        gateway=name,
        fingerprint=engines,
        observer=metrics,
        connect=connect_with(limits, vllm, name, gate, between_vllm.note),
    )
    registry = CollectorRegistry()
    metrics.register(registry)
    between_vllm.register(registry)
    registry.register(WorkerMetrics(router.snapshot))
    app = create_app(
        NamedApart(router),
        tier,
        registry,
        router.ready,
        lambda: engines,
        access=access,
        warnings=router.warnings,
    )
    # uvicorn takes the signals over while it serves and hands them back when it is done.
    with StopSignals(stop=lambda: None) as signals:
        await router.start()
        try:
            await HttpServer(app, listener, status).serve(sockets=[listener])
        finally:
            await router.close()
        return signals.exit_code


def engine_fingerprint(folder: ModelFolder) -> Mapping[str, str]:
    """What a worker of this model must agree with."""
    return {
        "protocol": str(PROTOCOL_VERSION),
        "weights": folder.content_hash(),
        "tokenizer": folder.tokenizer_hash(),
        "template": folder.template_hash(),
    }
