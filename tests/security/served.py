"""The gateway's application behind the server that it has in earnest, in a thread of its own."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from frontend.samples import byte_level_inner, served
from frontend.scale_out.rig import text_tier
from frontend.scripted import Script, ScriptedGenerator, saying
from splitserve.frontend.access import KeyRing
from splitserve.frontend.app import create_app
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.model import ServedModel
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.lifecycle import StatusPipe
from splitserve.processes.http import HttpServer, listen

TOKENIZER = Tokenizer(byte_level_inner(), bos_token="<s>")
MODEL = served(TOKENIZER)


def fine() -> Script:
    """Answers "fine" to everybody."""
    return saying(TOKENIZER.encode_prompt("fine"))


@dataclass
class Served:
    """``generator`` has what came through."""

    port: int
    generator: ScriptedGenerator

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class _Server(HttpServer):
    def __init__(self, app: object, listener: socket.socket) -> None:
        super().__init__(app, listener, StatusPipe(None))  # type: ignore[arg-type]
        self.accepting = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


@contextmanager
def serving(
    script: Script | None = None,
    *,
    model: ServedModel = MODEL,
    config: FrontendConfig | None = None,
    access: KeyRing | None = None,
) -> Iterator[Served]:
    generator = ScriptedGenerator(script or fine())
    listener = listen("127.0.0.1", 0)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    with text_tier(model, config=config) as tier:
        app = create_app(generator, tier, CollectorRegistry(), lambda: None, access=access)
        server = _Server(app, listener)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            assert server.accepting.wait(10)
            yield Served(listener.getsockname()[1], generator)
        finally:
            server.should_exit = True
            thread.join()
            listener.close()
