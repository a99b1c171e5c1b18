"""A process that would read answers otherwise than its peer does not start."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from splitserve.errors import ConfigError, UnavailableError
from splitserve.processes.agreement import check_agreement

OURS = {"tokenizer": "aaa", "template": "bbb", "reasoning_parser": "qwen3"}


@contextmanager
def peer(*answers: tuple[int, object]) -> Iterator[str]:
    """Answers /fingerprint with each of ``answers`` in turn, then with the last for ever."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, value = left.pop(0) if len(left) > 1 else left[0]
            body = json.dumps(value).encode()
            self.send_response(status if self.path == "/base/fingerprint" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/base/"
        finally:
            server.shutdown()
            thread.join()


def test_equal_settings_agree_whatever_else_the_peer_tells() -> None:
    with peer((200, {"parts": {**OURS, "weights": "only there"}})) as url:
        check_agreement(OURS, url)


def test_the_part_that_differs_is_named_with_both_values() -> None:
    with (
        peer((200, {"parts": {**OURS, "template": "other"}})) as url,
        pytest.raises(ConfigError, match="template: 'bbb' here, 'other' at the peer"),
    ):
        check_agreement(OURS, url)


def test_a_peer_that_comes_up_later_is_waited_for() -> None:
    with peer((503, {}), (200, {"parts": OURS})) as url:
        check_agreement(OURS, url)


@pytest.mark.parametrize("answer", [[], {}, {"parts": 5}, {"parts": {"tokenizer": 5}}])
def test_what_is_no_fingerprint_is_said_so(answer: object) -> None:
    with peer((200, answer)) as url, pytest.raises(UnavailableError, match="no fingerprint"):
        check_agreement(OURS, url, wait_s=0)


def test_a_peer_that_is_not_there_is_said_so() -> None:
    with pytest.raises(UnavailableError, match="--agree-with"):
        check_agreement(OURS, "http://127.0.0.1:1", wait_s=0)
