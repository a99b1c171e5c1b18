"""What is learnt of a running server by asking it."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from splitserve.doctor.asking import ask, check_url
from splitserve.doctor.deployment import examine_deployment
from splitserve.errors import ConfigError, UnavailableError

METRICS = """splitserve_worker_connected{worker="decode-0"} 1
splitserve_link{prefill="p0",decode="decode-0",connector="shm",way="shm",faster=""} 1
splitserve_handoff_exposed_seconds_count 2
splitserve_handoff_exposed_seconds_sum 0.02
"""
GATEWAY = {
    "/ready": json.dumps({"status": "ready", "warnings": ["decode-1: draining"]}),
    "/version": json.dumps({"version": "0.9"}),
    "/v1/models": json.dumps({"data": [{"id": "m"}]}),
    "/health": "{}",
    "/metrics": METRICS,
}


@contextmanager
def serving(pages: Mapping[str, str], ready_status: int = 200) -> Iterator[str]:
    """The URL of a server with these pages; others are 404. It echoes the key on /key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            if self.path == "/key":
                page = self.headers.get("authorization", "")
            status = 404 if page is None else ready_status if self.path == "/ready" else 200
            body = (page or "").encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_gateway_tells_of_itself() -> None:
    with serving(GATEWAY) as url:
        report = examine_deployment(f"{url}/", pause_s=0.0)
    assert (report.url, report.ready, report.version, report.models) == (url, True, "0.9", ("m",))
    assert [worker.name for worker in report.workers] == ["decode-0"]
    assert [link.connector for link in report.links] == ["shm"]
    assert [(link.way, link.faster) for link in report.links] == [("shm", "")]
    assert report.handoffs.exposed_ms == pytest.approx(10.0)
    assert report.clock is not None
    assert abs(report.clock.offset_s) <= report.clock.error_s
    assert [one.says for one in report.advice] == ["decode-1: draining"]


def test_a_gateway_that_is_not_ready_says_why() -> None:
    pages = {**GATEWAY, "/ready": json.dumps({"reason": "no worker is registered"})}
    with serving(pages, ready_status=503) as url:
        report = examine_deployment(url, pause_s=0.0)
    assert (report.ready, report.reason) == (False, "no worker is registered")
    assert report.advice[0].level == "error"


def test_another_server_is_looked_at_as_far_as_it_goes() -> None:
    with serving({"/v1/models": GATEWAY["/v1/models"], "/metrics": "<html>"}) as url:
        report = examine_deployment(url, pause_s=0.0)
    assert (report.ready, report.version, report.workers) == (None, "", ())
    assert report.models == ("m",)
    assert [one.level for one in report.advice] == ["note"]


def test_the_key_of_the_environment_is_sent() -> None:
    with serving({}) as url:
        assert ask(url, "/key", {"SPLITSERVE_API_KEY": "k"}).body == b"Bearer k"
        assert ask(url, "/key", {}).body == b""


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    with pytest.raises(UnavailableError, match="/ready does not answer"):
        examine_deployment(f"http://127.0.0.1:{number}")


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h:x", "http://h:99999"])
def test_a_url_that_cannot_be_asked_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not of the form"):
        check_url(url)
