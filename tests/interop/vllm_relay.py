"""Stands before an instance and lies about where its KV is."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from vllm_instance import HOST

_PASSED_ON = ("Content-Type", "X-Request-Id")


@dataclass
class Relay:
    """``changes`` may be replaced while it runs."""

    url: str
    changes: Mapping[str, Any]


@contextmanager
def lying(url: str, changes: Mapping[str, Any]) -> Iterator[Relay]:
    """Answers as ``url`` does, except for ``changes`` in the ``kv_transfer_params`` of its
    answers."""
    relay = Relay("", changes)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on("GET", b"")

        def do_POST(self) -> None:
            self._pass_on("POST", self.rfile.read(int(self.headers["Content-Length"])))

        def log_message(self, *args: object) -> None:
            pass

        def _pass_on(self, method: str, body: bytes) -> None:
            headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
            answer = httpx.request(method, url + self.path, content=body, headers=headers)
            content = _changed(answer.content, relay.changes)
            with suppress(ConnectionError):  # who asked may have gone
                self.send_response(answer.status_code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        relay.url = f"http://{HOST}:{server.server_port}"
        try:
            yield relay
        finally:
            server.shutdown()
            thread.join()


def _changed(content: bytes, changes: Mapping[str, Any]) -> bytes:
    if b'"remote_port"' not in content:
        return content
    answer = json.loads(content)
    answer["kv_transfer_params"].update(changes)
    return json.dumps(answer).encode()
