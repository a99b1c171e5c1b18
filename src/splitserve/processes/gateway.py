"""The gateway process: frontend and router joined, served over HTTP until stopped."""

import gc
import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

import uvicorn
import uvloop
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from splitserve.errors import ConfigError
from splitserve.frontend.app import create_app
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.model import ServedModel
from splitserve.lifecycle import StatusPipe, StopSignals, reporting_failure
from splitserve.modelstore.folder import ModelFolder
from splitserve.modelstore.resolve import resolve
from splitserve.processes.config import GatewayConfig
from splitserve.processes.gateway_metrics import RouterMetrics, WorkerMetrics
from splitserve.protocol.control import PROTOCOL_VERSION
from splitserve.router.config import RouterConfig
from splitserve.router.handoff.orchestrator import Router

log = logging.getLogger(__name__)

GRACE_S: Final = 3
"""How long a stopping gateway lets running answers go on."""

BACKLOG: Final = 2048
KEEP_ALIVE_S: Final = 75


def run(config: GatewayConfig, status: StatusPipe) -> int:
    """Serves until SIGTERM or Ctrl-C. Returns the exit code.

    Raises ConfigError or UnavailableError when it cannot start; ``status`` has been told then.
    """
    with reporting_failure(status):
        folder = resolve(config.model)
        model = ServedModel.load(folder, name=config.served_model_name)
        listener = _listen(config.host, config.port)
    return uvloop.run(_serve(config, folder, model, listener, status))


async def _serve(
    config: GatewayConfig,
    folder: ModelFolder,
    model: ServedModel,
    listener: socket.socket,
    status: StatusPipe,
) -> int:
    metrics = RouterMetrics()
    router = Router(
        RouterConfig(policy=config.policy, request_timeout_s=config.request_timeout_s),
        config.workers,
        gateway=f"gateway-{os.getpid()}",
        fingerprint=_fingerprint(folder),
        observer=metrics,
    )
    registry = CollectorRegistry()
    metrics.register(registry)
    registry.register(WorkerMetrics(router.snapshot))
    app = create_app(router, model, FrontendConfig(), registry, router.ready)
    # uvicorn takes the signals over while it serves and hands them back when it is done.
    with StopSignals(stop=lambda: None) as signals:
        await router.start()
        try:
            await _Server(app, listener, status).serve(sockets=[listener])
        finally:
            await router.close()
        return signals.exit_code


def _fingerprint(folder: ModelFolder) -> Mapping[str, str]:
    """What a worker of this model must agree with."""
    return {
        "protocol": str(PROTOCOL_VERSION),
        "weights": folder.content_hash(),
        "tokenizer": folder.tokenizer_hash(),
    }


class _Server(uvicorn.Server):
    """Says that it is ready once it accepts."""

    def __init__(self, app: ASGIApp, listener: socket.socket, status: StatusPipe) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._listener = listener
        self._status = status

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What lives now lives for ever: the collector need not look at it between tokens.
        gc.collect()
        gc.freeze()
        host, port = self._listener.getsockname()[:2]
        log.info("listening on %s port %d", host, port)
        self._status.ready(port=port)


def _listen(host: str, port: int) -> socket.socket:
    """Raises ConfigError naming the address and why it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --port"
        ) from error
    listener.setblocking(False)
    return listener
