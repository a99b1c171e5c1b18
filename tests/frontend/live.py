"""A real server on a real port, in a thread of its own."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from frontend.scripted import ScriptedGenerator
from splitserve.frontend.app import create_app
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.model import ServedModel
from splitserve.frontend.scale_out.stream_state import StateSeal
from splitserve.frontend.scale_out.tier import TextTier


@dataclass
class Live:
    """``not_ready`` is what the application's readiness says."""

    port: int
    registry: CollectorRegistry
    not_ready: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Server(uvicorn.Server):
    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                loop="uvloop",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=5,
            )
        )
        self.accepting = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


@contextmanager
def serving(
    generator: ScriptedGenerator, model: ServedModel, config: FrontendConfig | None = None
) -> Iterator[Live]:
    registry = CollectorRegistry()
    limits = config or FrontendConfig()
    parts = {"model": model.name}
    tier = TextTier(
        model=model,
        config=limits,
        fingerprint=parts,
        end_ids=frozenset(),
        seal=StateSeal(b"k" * 32, parts),
        threads=ThreadPoolExecutor(limits.render_threads),
    )
    not_ready: list[str] = []
    ready: Callable[[], str | None] = lambda: not_ready[0] if not_ready else None  # noqa: E731
    server = _Server(create_app(generator, tier, registry, ready))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            assert server.accepting.wait(10)
            yield Live(listener.getsockname()[1], registry, not_ready)
        finally:
            server.should_exit = True
            thread.join()
