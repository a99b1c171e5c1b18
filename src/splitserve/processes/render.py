"""The render process: a text tier, served over HTTP until stopped. No workers, no accelerator."""

import os
import socket
from typing import Final

import uvloop
from prometheus_client import CollectorRegistry

from splitserve.frontend.access import KeyRing
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.model import ServedModel
from splitserve.frontend.scale_out.app import create_text_app
from splitserve.frontend.scale_out.tier import TextTier
from splitserve.lifecycle import StatusPipe, StopSignals, reporting_failure
from splitserve.modelstore.resolve import resolve
from splitserve.processes.agreement import check_agreement
from splitserve.processes.http import HttpServer, listen
from splitserve.processes.render_config import RenderConfig
from splitserve.processes.text_tier import new_tier

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""A whole answer with 20 alternatives a token has about 1 KiB a token."""


def run(config: RenderConfig, status: StatusPipe) -> int:
    """Serves until SIGTERM or Ctrl-C. Returns the exit code.

    Raises ConfigError or UnavailableError when it cannot start; ``status`` has been told then.
    """
    with reporting_failure(status):
        folder = resolve(config.model)
        model = ServedModel.load(
            folder,
            name=config.served_model_name,
            max_model_len=config.max_model_len,
            reasoning_parser=config.reasoning_parser,
            tool_call_parser=config.tool_call_parser,
        )
        limits = FrontendConfig(max_body_bytes=MAX_BODY_BYTES)
        tier = new_tier(folder, model, limits, config.state_key_file)
        if config.agree_with is not None:
            check_agreement(tier.fingerprint, config.agree_with)
        access = KeyRing.load(config.api_key_file, os.environ)
        listener = listen(config.host, config.port)
    return uvloop.run(_serve(tier, access, listener, status))


async def _serve(
    tier: TextTier, access: KeyRing | None, listener: socket.socket, status: StatusPipe
) -> int:
    app = create_text_app(tier, CollectorRegistry(), access)
    # uvicorn takes the signals over while it serves and hands them back when it is done.
    with StopSignals(stop=lambda: None) as signals:
        await HttpServer(app, listener, status).serve(sockets=[listener])
        return signals.exit_code
